"""Lists of numbers as the system and `--host-policy` write them: `0-3,8,10-11`. Owns reading and writing them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)
MOST_NUMBER = 65535
"""No system has a CPU with a higher number."""


def parse_ranges(text: str) -> frozenset[int]:
    """Return the numbers that `text` lists. Raises ValueError for anything else, and for a list of none."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"'{part}' is neither a number nor a range such as 0-3")
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last <= MOST_NUMBER:
            raise ValueError(f"'{part}' isn't a range from a lower to a higher number of at most {MOST_NUMBER}")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def ranges_text(numbers: Iterable[int]) -> str:
    """Return the shortest text for `numbers`, "" for none."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

"""Which version a request goes to: the decision alone.

Owns the mathematics. Knows no model, no request and no source of chance: a point is given.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from hashlib import blake2b
from itertools import accumulate

SequenceId = int | str


class Split:
    """Versions with weights, each above 0; at least one."""

    __slots__ = ("_bounds", "_versions", "_weights")

    def __init__(self, weights: Mapping[int, float]) -> None:
        self._versions = tuple(weights)
        self._weights = tuple(weights.values())
        self._bounds = list(accumulate(self._weights))

    def at(self, point: float) -> int:
        """Return the version at `point`, 0 <= point < 1, of a line on which each has as much room as it has weight."""
        position = bisect_right(self._bounds, point * self._bounds[-1])
        # Rounding may put the last point on the end of the line.
        return self._versions[min(position, len(self._versions) - 1)]

    def for_sequence(self, sequence_id: SequenceId) -> int:
        """Return the version of a sequence: always the same, and shares of many are as the weights.

        When a version joins or leaves, only the sequences that it gains or had move (rendezvous hashing).
        """
        if len(self._versions) == 1:
            return self._versions[0]
        return min(
            zip(self._versions, self._weights),
            key=lambda item: -math.log(1 - sequence_point(sequence_id, f"split {item[0]}")) / item[1],
        )[0]

    def shares(self) -> dict[int, float]:
        """Return the part of the requests that each version gets; together 1."""
        return {version: weight / self._bounds[-1] for version, weight in zip(self._versions, self._weights)}


def sequence_point(sequence_id: SequenceId, purpose: str) -> float:
    """Return the point of a sequence, 0 <= point < 1, as good as drawn but always the same; another for each purpose.

    An integer and a text with its digits are two sequences.
    """
    digest = blake2b(f"{purpose} {sequence_id!r}".encode("utf-8", "surrogatepass"), digest_size=7).digest()
    return (int.from_bytes(digest, "big") >> 3) / (1 << 53)

"""Shapes: element counts that can't overflow, and matching against dims with variable sizes.

Owns arithmetic on shapes. Python integers have no width, so a product is exact however large the dims are; callers compare it
with what was really received before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

VARIABLE = -1

element_count = prod


def matches(shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Return whether `shape` (all sizes known) fits `dims`, where -1 takes any size from 0 on."""
    if len(shape) != len(dims):
        return False
    for size, dim in zip(shape, dims):  # noqa: SIM110 - a generator takes twice as long, and every tensor gets here
        if dim != size and dim != VARIABLE:  # noqa: PLR1714 - a tuple would be made each time
            return False
    return True


def text(shape: Sequence[int]) -> str:
    """Return `shape` as the protocol's messages write it: [-1,16]."""
    return f"[{','.join(map(str, shape))}]"

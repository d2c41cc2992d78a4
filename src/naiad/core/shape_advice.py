"""One piece of advice for a shape that doesn't fit: the one change that would make it fit.

Owns the guess, which is a pure function of the two shapes. Beginners' trouble with `max_batch_size` and `dims` is the most
frequent of all, so the text says what to do and not which rule was broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from naiad.config.plan import TensorPlan
from naiad.tensor import shape as shapes

# 7! orders are looked through in a few milliseconds; more are no picture in another layout.
_MOST_DIMS_TO_PERMUTE = 6


def advise(shape: Sequence[int], plan: TensorPlan, max_batch_size: int) -> str:
    """Return what to change in `shape`, which doesn't fit `plan.shape`; a text without a full stop."""
    if max_batch_size and shapes.matches(shape, plan.dims):
        return f"add the batch dimension: {shapes.text([1, *shape])}"
    if not max_batch_size and len(shape) == len(plan.dims) + 1 and shapes.matches(shape[1:], plan.dims):
        return (
            f"this model has no batch dimension (max_batch_size: 0): send {shapes.text(shape[1:])}"
            if shape[0] == 1
            else "this model has no batch dimension (max_batch_size: 0): send one request for each item"
        )
    if len(shape) != len(plan.shape):
        return _rank_advice(shape, plan, max_batch_size)
    if max_batch_size and shape[0] == 0:
        return "the batch dimension must be 1 or more"
    return _dimension_advice(shape, plan)


def _rank_advice(shape: Sequence[int], plan: TensorPlan, max_batch_size: int) -> str:
    text = f"{len(plan.shape)} dimensions are needed, got {len(shape)}"
    if max_batch_size:
        text += f": the batch dimension (1 to {max_batch_size}) and {len(plan.dims)} of the item, {shapes.text(plan.dims)}"
    without_ones = [size for size in shape if size != 1]
    fixed = [dim for dim in plan.dims if dim != 1]
    if shapes.matches(without_ones, fixed):
        fitting = [1] * (len(plan.shape) - len(plan.dims)) + [
            dim if dim >= 0 else size for dim, size in zip(plan.dims, _aligned(without_ones, plan.dims))
        ]
        text += f"; {shapes.text(fitting)} would fit"
    return text


def _aligned(sizes: Sequence[int], dims: Sequence[int]) -> list[int]:
    """Return `sizes` with a 1 put in wherever `dims` has one."""
    remaining = iter(sizes)
    return [1 if dim == 1 else next(remaining) for dim in dims]


def _dimension_advice(shape: Sequence[int], plan: TensorPlan) -> str:
    offset = len(plan.shape) - len(plan.dims)
    for index, (size, dim) in enumerate(zip(shape, plan.shape)):
        if dim not in (shapes.VARIABLE, size):
            text = f"dimension {index} is {size}, must be {dim}"
            break
    else:
        return "the shape fits"
    item = list(shape[offset:])
    if len(item) <= _MOST_DIMS_TO_PERMUTE and any(shapes.matches(order, plan.dims) for order in permutations(item)):
        hint = "NHWC/NCHW?" if len(item) == 3 else "check the order of the dimensions"
        text += f" (looks transposed: {hint})"
    return text

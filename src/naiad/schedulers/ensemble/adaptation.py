"""Shapes between models that batch and models that don't: a batch of one gets its dimension, or loses it.

Owns that rule, a pure function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from naiad.config.plan import TensorPlan
from naiad.tensor import shape as shapes


def adapted(array: np.ndarray[Any, Any], tensor: TensorPlan) -> np.ndarray[Any, Any]:
    """Return a view of `array` as `tensor` wants it: as it is where its shape fits, else with a batch dimension of 1 added or
    taken away where that makes it fit. What fits in no way stays as it is, for who checks it to refuse.
    """
    shape = array.shape
    if shapes.matches(shape, tensor.shape):
        return array
    if len(tensor.shape) > len(tensor.dims) and shapes.matches(shape, tensor.dims):
        return array[None]
    if len(tensor.shape) == len(tensor.dims) and shape[:1] == (1,) and shapes.matches(shape[1:], tensor.dims):
        fitting: np.ndarray[Any, Any] = array[0]
        return fitting
    return array

"""What a user says of a function that is to be served: its tensors, how it batches, how it wants its input.

Owns these values and the decorator. Imports little: a worker process that runs a decorated function imports it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from naiad.errors import invalid_argument
from naiad.server.embedded import arrays
from naiad.tensor.datatype import Datatype

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, init=False)
class Tensor:
    """An input or output of a function.

    `dtype` is anything that numpy takes for one, `bytes` or `str` for strings, ml_dtypes' `bfloat16`, or the protocol's name
    (`"FP32"`). `shape` is that of one item, without the batch dimension; -1 is any size. `()` is one value an item: the
    function sees `[n]`, clients `[n, 1]`. `is_optional`, for inputs: requests may leave it out.

    Raises InferenceServerError for a dtype that the protocol doesn't have and a size below -1.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    is_optional: bool

    def __init__(self, name: str, dtype: Any, shape: Sequence[int], is_optional: bool = False) -> None:
        if not name:
            raise invalid_argument("a tensor needs a name")
        sizes = tuple(int(size) for size in shape)
        if any(size < -1 for size in sizes):
            raise invalid_argument(f"tensor '{name}': shape {list(sizes)} has a size below -1; -1 is any size")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "datatype", arrays.datatype_of(dtype, f"tensor '{name}'"))
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "is_optional", is_optional)


@dataclass(frozen=True, slots=True)
class Batching:
    """How requests are put together: at most `max_batch_size` items at a time.

    A batch that isn't full, nor of one of the `preferred_batch_sizes`, waits up to `max_queue_delay_us` microseconds for more.
    """

    max_batch_size: int = 4
    max_queue_delay_us: int = 0
    preferred_batch_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_batch_size < 1:
            raise invalid_argument(f"max_batch_size is {self.max_batch_size}, must be 1 or more; batching=False is none")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A function's signature: `batching` None is a model without a batch dimension.

    `takes_requests`: the function gets a list of `SingleRequest` and returns a list with a result for each.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batching: Batching | None
    takes_requests: bool = False


@dataclass(frozen=True, slots=True)
class ModelFunction:
    """A function with its signature, made by `model_function`; to call it is to call the function."""

    function: Callable[..., Any]
    declaration: Declaration

    @property
    def name(self) -> str:
        """The function's own name."""
        return name_of(self.function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **named)


def declare(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], batching: Batching | bool = True, takes_requests: bool = False
) -> Declaration:
    """Return a checked declaration; `batching` True is `Batching()`. Raises InferenceServerError (INVALID_ARGUMENT)."""
    for kind, tensors in (("inputs", inputs), ("outputs", outputs)):
        strange = next((tensor for tensor in tensors if not isinstance(tensor, Tensor)), None)
        if strange is not None:
            raise invalid_argument(f"{kind} must be a list of Tensor, one of them is {strange!r}")
    if isinstance(batching, bool):
        return Declaration(tuple(inputs), tuple(outputs), Batching() if batching else None, takes_requests)
    return Declaration(tuple(inputs), tuple(outputs), batching, takes_requests)


def model_function(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], batching: Batching | bool = True, takes_requests: bool = False
) -> Callable[[Callable[..., Any]], ModelFunction]:
    """Give a function the signature that it is served with; a decorator. See `Server.bind` for how the function is called."""
    declaration = declare(inputs, outputs, batching, takes_requests)
    return lambda function: ModelFunction(function, declaration)


def name_of(function: Callable[..., Any]) -> str:
    """Return what a callable is called: a function's name, an object's class."""
    return str(getattr(function, "__name__", "")) or type(function).__name__

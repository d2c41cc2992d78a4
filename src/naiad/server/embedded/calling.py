"""How a served function is called: arrays by name in, arrays by name out.

Owns the ways in which a function takes its input and gives its result, and what is wrong with a function that can't be served.
Runs in the server's threads and in worker processes alike; knows neither.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from naiad.backends.base import SingleRequest
from naiad.errors import InferenceServerError, internal, invalid_argument
from naiad.server.embedded import arrays
from naiad.server.embedded.declaration import Array, Declaration, Tensor, name_of
from naiad.tensor.datatype import BF16, BYTES

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class FunctionCaller:
    """Calls one function. Raises INVALID_ARGUMENT when it can't be served; the text begins with its name.

    Arrays on both sides are in the server's form (see `arrays`); the function sees its own: read-only, bfloat16 as such.
    """

    __slots__ = ("_datatypes", "_function", "_is_keyword", "_outputs", "takes_requests")

    def __init__(self, function: Callable[..., Any], declaration: Declaration) -> None:
        _refuse_kind(function)
        self._function = function
        self.takes_requests = declaration.takes_requests
        self._outputs = {tensor.name: tensor for tensor in declaration.outputs}
        self._datatypes = {tensor.name: tensor.datatype for tensor in declaration.inputs}
        self._is_keyword = False if declaration.takes_requests else _takes_keywords(function, declaration.inputs)

    def call(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the function on gathered arrays; return its outputs. Raises INTERNAL for a result that fits no declaration, and
        whatever the function raises.
        """
        seen = self._as_seen(inputs)
        return self._named(self._function(**seen) if self._is_keyword else self._function(seen))

    def call_requests(self, requests: Sequence[SingleRequest]) -> list[dict[str, Array]]:
        """Run the function on a list of requests; return the outputs of each, in order. Raises as `call` does."""
        seen = [
            SingleRequest(self._as_seen(request.inputs), request.outputs, request.parameters, request.id)
            for request in requests
        ]
        results = self._function(seen)
        if not isinstance(results, list | tuple):
            raise internal(f"the function returned a {type(results).__name__}, must be a list with a result for each request")
        if len(results) != len(requests):
            raise internal(f"the function returned {len(results)} results for {len(requests)} requests")
        return [self._named(result) for result in results]

    def _as_seen(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {name: arrays.read_only(arrays.from_server(self._datatypes[name], array)) for name, array in inputs.items()}

    def _named(self, result: Any) -> dict[str, Array]:
        """Return the outputs by name in the server's form; what is no array stays, for the check of outputs to refuse."""
        names = list(self._outputs)
        if isinstance(result, Mapping):
            unknown = next((name for name in result if name not in self._outputs), None)
            if unknown is not None:
                raise internal(f"the function returned output '{unknown}', its outputs are: {', '.join(names)}")
            named = dict(result)
        elif isinstance(result, list | tuple):
            if len(result) != len(names):
                raise internal(f"the function returned {len(result)} values, must be {len(names)}: {', '.join(names)}")
            named = dict(zip(names, result))
        elif len(names) == 1 and result is not None:
            named = {names[0]: result}
        else:
            raise internal(
                f"the function returned a {type(result).__name__}, must be a dict or a tuple of arrays: {', '.join(names)}"
            )
        return {name: _from_function(self._outputs[name], value) for name, value in named.items()}


def check_wanted(outputs: Mapping[str, Array], wanted: Sequence[str]) -> None:
    """Raise INTERNAL when an output that is wanted isn't there."""
    missing = next((name for name in wanted if name not in outputs), None)
    if missing is not None:
        raise internal(f"the function returned no output '{missing}', it returned: {', '.join(outputs) or 'nothing'}")


def _from_function(tensor: Tensor, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if tensor.datatype is BYTES and value.dtype.kind in "OSU":
        try:
            return arrays.as_bytes(value, f"the function returned output '{tensor.name}'")
        except InferenceServerError as error:
            raise internal(error.message) from None
    if tensor.datatype is BF16:
        return value.view(BF16.numpy) if value.dtype.name == "bfloat16" else value
    return value


def _refuse_kind(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise invalid_argument(f"{function!r} can't be served: it is no function")
    for code in (function, getattr(function, "__call__", None)):  # noqa: B004 — an object's own __call__ may be one
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            raise invalid_argument(
                f"{name_of(function)}: a generator can't be served as a function, since it would answer a request many times; "
                "a Python model in a repository can (decoupled)"
            )
        if inspect.iscoroutinefunction(code):
            raise invalid_argument(
                f"{name_of(function)}: an async function can't be served as a function, batches run in threads; "
                "a Python model in a repository can be async"
            )


def _takes_keywords(function: Callable[..., Any], inputs: Sequence[Tensor]) -> bool:
    """Return whether the function takes each input by its name, or else one dict of all."""
    name = name_of(function)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise invalid_argument(f"{name}: its parameters can't be read; serve a Python function that calls it") from None
    by_name = {parameter.name: parameter for parameter in parameters if parameter.kind in _NAMED}
    is_open = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    names = {tensor.name for tensor in inputs}
    needed = [item for item in parameters if item.default is item.empty and item.kind not in _VARIADIC]
    if all(is_open or known in by_name for known in names) and all(item.name in names for item in needed):
        for tensor in inputs:
            if tensor.is_optional and tensor.name in by_name and by_name[tensor.name].default is inspect.Parameter.empty:
                raise invalid_argument(
                    f"{name}: input '{tensor.name}' is optional, so its parameter needs a default: {tensor.name}=None"
                )
        return True
    if len(needed) == 1 and needed[0].kind in _POSITIONAL:
        return False
    raise invalid_argument(
        f"{name}: its parameters ({', '.join(map(str, parameters))}) don't fit its inputs ({', '.join(sorted(names))}): it "
        "must take each input by its name, or all of them as one dict"
    )

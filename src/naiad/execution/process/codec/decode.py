"""Responses out of a worker's frames: views of its output arena, checked against the model's plan.

Owns that layout on the server's side, and that nothing a worker says is believed unchecked.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import orjson

from naiad.config.plan import ModelPlan, TensorPlan
from naiad.errors import Code, FailureReason, InferenceServerError
from naiad.execution.output_checks import OutputChecker
from naiad.execution.process.life.death import BrokenWorkerError
from naiad.request.request import InferRequest
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BYTES

Array = np.ndarray[Any, Any]
Buffer = bytes | Array

_MAX_KNOWN = 256
_MAX_KNOWN_BYTES = 4096
_SCALARS = frozenset((str, int, bool, float))


class KnownResponse:
    """A response as a worker described it, with what was worked out for the last request that it answered: where its outputs
    lie, checked against the plan. The next one that wants the same outputs for as many items needs only the views.
    """

    __slots__ = ("message", "outputs", "places", "rows")

    def __init__(self, message: dict[str, Any]) -> None:
        self.message = message
        self.outputs: tuple[str, ...] = ()
        self.rows = -1
        self.places: list[_Place] = []

    @property
    def is_none(self) -> bool:
        """Whether `execute` returned None for the request, which is answered otherwise."""
        return "none" in self.message


class _Place(NamedTuple):
    """One output: its plan, and where it lies. `elements` is their number."""

    plan: TensorPlan
    shape: list[int]
    elements: int
    offset: int
    size: int


class ResponseDecoder:
    """Decodes the responses of one model version; tails that come again, as most do, are known by their bytes."""

    __slots__ = ("_checker", "_known", "_model", "_version", "is_decoupled")

    def __init__(self, plan: ModelPlan, checker: OutputChecker) -> None:
        self._model = plan.name
        self._version = str(plan.version)
        self.is_decoupled = plan.is_decoupled
        self._checker = checker
        self._known: dict[bytes, list[KnownResponse]] = {}

    def read_batch(self, tail: bytes) -> list[KnownResponse]:
        """Return the responses in the tail of a RESULT. Raises BrokenWorkerError."""
        known = self._known.get(tail)
        return self._learn(tail, parse(tail)) if known is None else known

    def read_one(self, tail: bytes) -> KnownResponse:
        """Return the response in the tail of a RESPONSE. Raises BrokenWorkerError."""
        known = self._known.get(tail)
        return (self._learn(tail, [parse(tail)]) if known is None else known)[0]

    def response(self, known: KnownResponse, request: InferRequest, data: Buffer) -> InferResponse | InferenceServerError:
        """Return a response to `request`, or the error that it is; `data` is the block. Raises BrokenWorkerError."""
        try:
            if known.rows != request.batch_size or known.outputs != request.outputs:
                error = known.message.get("error")
                if error is not None:
                    return model_error(error)
                self._find_places(known, request)
            outputs = [OutputTensor(place.plan.name, place.plan.datatype, self._array(place, data)) for place in known.places]
        except InferenceServerError as fault:
            return backend_error(fault)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError) as fault:
            raise BrokenWorkerError(f"a response can't be read: {type(fault).__name__}: {fault}") from fault
        return InferResponse(self._model, self._version, request.id, outputs, known.message.get("parameters") or {})

    def _learn(self, tail: bytes, messages: Any) -> list[KnownResponse]:
        if not isinstance(messages, list) or not messages or not all(_is_response(message) for message in messages):
            raise BrokenWorkerError(f"responses can't be read: {messages!r:.200}")
        known = [KnownResponse(message) for message in messages]
        if len(tail) <= _MAX_KNOWN_BYTES:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[tail] = known
        return known

    def _find_places(self, known: KnownResponse, request: InferRequest) -> None:
        """Work out where the wanted outputs lie. Raises the error of one that is missing or wrong."""
        tensors = {item[0]: item for item in known.message["outputs"]}
        places = []
        for name in request.outputs:
            if name not in tensors:
                if request.may_omit_outputs:
                    continue
                raise self._checker.missing(name)
            _, datatype, shape, offset, size = tensors[name]
            if not all(type(number) is int and number >= 0 for number in (*shape, offset, size)):
                raise ValueError(f"output '{name}' has shape {shape}, offset {offset} and size {size}")
            plan = self._checker.check(name, datatype, shape, request.batch_size)
            places.append(_Place(plan, shape, math.prod(shape), offset, size))
        known.places, known.rows, known.outputs = places, request.batch_size, request.outputs
        if len(places) < len(request.outputs):
            known.rows = -1  # The next request may want all of it.

    def _array(self, place: _Place, data: Buffer) -> Array:
        """Return an output as a view of `data`, its block (BYTES are copied out), in the shape that clients see."""
        plan, shape, count, offset, size = place
        datatype = plan.datatype
        if datatype is BYTES:
            array = _strings(place, data)
        elif size != count * datatype.size_bytes:
            raise ValueError(f"a tensor of {size} bytes has shape {shape} and datatype {datatype.name}")
        elif count:
            array = np.frombuffer(data, datatype.numpy, count, offset).reshape(shape)
        else:
            array = np.empty(shape, datatype.numpy)
        return self._checker.to_client_shape(plan, array) if plan.has_reshape else array


def _is_response(message: Any) -> bool:
    """Return whether `message` is an object whose parameters can be a response's."""
    if not isinstance(message, dict):
        return False
    parameters = message.get("parameters")
    return parameters is None or (isinstance(parameters, dict) and all(type(item) in _SCALARS for item in parameters.values()))


def _strings(place: _Place, data: Buffer) -> Array:
    view = memoryview(data)  # type: ignore[arg-type]
    elements = bytes_tensor.decode(view[place.offset : place.offset + place.size], place.elements)
    if len(elements) != place.elements:
        raise ValueError(f"a BYTES tensor of shape {place.shape} has {len(elements)} elements")
    return bytes_tensor.as_array(elements, tuple(place.shape))


def parse(tail: bytes) -> Any:
    """Return the object in a tail. Raises BrokenWorkerError."""
    try:
        return orjson.loads(tail)
    except orjson.JSONDecodeError as error:
        raise BrokenWorkerError(f"a frame's tail isn't JSON: {error}") from error


def failure(tail: bytes) -> InferenceServerError:
    """Return the error in the tail of a RETURNED with FLAG_FAILED. Raises BrokenWorkerError."""
    message = parse(tail)
    if not isinstance(message, dict):
        raise BrokenWorkerError(f"a failure can't be read: {message!r:.200}")
    return model_error(message.get("error"))


def model_error(pair: Any) -> InferenceServerError:
    """Return the error that a model gave, [code name, text]; it counts as the backend's. Raises BrokenWorkerError."""
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(item, str) for item in pair)):
        raise BrokenWorkerError(f"an error can't be read: {pair!r:.200}")
    code, text = pair
    if code not in Code.__members__:
        raise BrokenWorkerError(f"an error has the code {code!r:.200}")
    return InferenceServerError(Code[code], text, FailureReason.BACKEND)


def backend_error(error: InferenceServerError) -> InferenceServerError:
    """Return `error` as one that counts as the backend's."""
    return InferenceServerError(error.code, error.message, FailureReason.BACKEND)

"""Responses out of a worker's frames: views of its output arena, checked against the model's plan.

Owns that layout on the server's side, and that nothing a worker says is believed unchecked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from naiad.config.plan import ModelPlan
from naiad.errors import Code, FailureReason, InferenceServerError
from naiad.execution.output_checks import OutputChecker
from naiad.execution.process.life.death import BrokenWorkerError
from naiad.request.request import InferRequest
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import Datatype
from naiad.worker.messages import ResponseMessage, TensorMessage

Array = np.ndarray[Any, Any]
Buffer = bytes | Array

_MAX_KNOWN = 256


class ResponseDecoder:
    """Decodes the responses of one model version; tails that come again, as most do, are known by their bytes."""

    __slots__ = ("_checker", "_known", "_model", "_version", "is_decoupled")

    def __init__(self, plan: ModelPlan, checker: OutputChecker) -> None:
        self._model = plan.name
        self._version = str(plan.version)
        self.is_decoupled = plan.is_decoupled
        self._checker = checker
        self._known: dict[bytes, Any] = {}

    def read(self, tail: bytes) -> Any:
        """Return the object in a tail, to be read only. Raises BrokenWorkerError."""
        message = self._known.get(tail)
        if message is None:
            message = parse(tail)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[tail] = message
        return message

    def response(self, message: ResponseMessage, request: InferRequest, data: Buffer) -> InferResponse | InferenceServerError:
        """Return a response to `request`, or the error that it is; `data` is the block. Raises BrokenWorkerError."""
        try:
            error = message.get("error")
            if error is not None:
                return model_error(error)
            tensors = {item[0]: item for item in message["outputs"]}
            outputs = [self._output(name, tensors, request, data) for name in request.outputs]
        except InferenceServerError as fault:
            return backend_error(fault)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as fault:
            raise BrokenWorkerError(f"a response can't be read: {type(fault).__name__}: {fault}") from fault
        return InferResponse(self._model, self._version, request.id, outputs, message.get("parameters", {}))

    def _output(self, name: str, tensors: dict[str, TensorMessage], request: InferRequest, data: Buffer) -> OutputTensor:
        tensor = tensors.get(name)
        if tensor is None:
            raise self._checker.missing(name)
        _, datatype, shape, _, _ = tensor
        plan = self._checker.check(name, datatype, shape, request.batch_size)
        return OutputTensor(name, plan.datatype, self._checker.to_client_shape(plan, array_of(tensor, plan.datatype, data)))


def parse(tail: bytes) -> Any:
    """Return the object in a tail. Raises BrokenWorkerError."""
    try:
        return orjson.loads(tail)
    except orjson.JSONDecodeError as error:
        raise BrokenWorkerError(f"a frame's tail isn't JSON: {error}") from error


def array_of(tensor: Sequence[Any], datatype: Datatype, data: Buffer) -> Array:
    """Return a tensor as a view of `data`, its block (BYTES are copied out). Raises ValueError when it can't lie there."""
    _, _, shape, offset, size = tensor
    count = math.prod(shape)
    if datatype.name == "BYTES":
        elements = bytes_tensor.decode(memoryview(data)[offset : offset + size], count)  # type: ignore[arg-type]
        if len(elements) != count:
            raise ValueError(f"a BYTES tensor of shape {shape} has {len(elements)} elements")
        return bytes_tensor.as_array(elements, tuple(shape))
    if size != count * datatype.size_bytes:
        raise ValueError(f"a tensor of {size} bytes has shape {shape} and datatype {datatype.name}")
    if not count:
        return np.empty(shape, datatype.numpy)
    array: Array = np.frombuffer(data, datatype.numpy, count, offset).reshape(shape)
    return array


def model_error(pair: Sequence[str]) -> InferenceServerError:
    """Return the error that a model gave, [code name, text]; it counts as the backend's."""
    code, text = pair
    if code not in Code.__members__:
        raise BrokenWorkerError(f"an error has the code {code!r}")
    return InferenceServerError(Code[code], text, FailureReason.BACKEND)


def backend_error(error: InferenceServerError) -> InferenceServerError:
    """Return `error` as one that counts as the backend's."""
    return InferenceServerError(error.code, error.message, FailureReason.BACKEND)

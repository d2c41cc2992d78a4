"""`InferenceRequest`: what a model gets to answer, and what it sends to another model.

Owns both. Who holds a request, or its sender, owes its answer: when nobody does any more, the host ends it with an error.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from naiad.worker.api import host
from naiad.worker.api.errors import TritonError, TritonModelException, check_type, checked_whole
from naiad.worker.api.host import Call
from naiad.worker.api.response import InferenceResponse, ResponseIterator, checked_parameters
from naiad.worker.api.sender import InferenceResponseSender
from naiad.worker.api.tensor import Tensor
from naiad.worker.messages import CallMessage, Parameter, RequestMessage

SEQUENCE_START = 1
SEQUENCE_END = 2
RELEASE_ALL = 1
RELEASE_RESCHEDULE = 2


class MemoryType(IntEnum):
    """Where a called model's outputs should lie."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1
    DEFAULT = 2


class PreferredMemory:
    """Where a called model's outputs should lie. A wish: tensors lie in the host's memory."""

    __slots__ = ("_device", "_kind")

    def __init__(self, preferred_memory_type: int = MemoryType.DEFAULT, preferred_device_id: int = 0) -> None:
        self._kind = MemoryType(preferred_memory_type)
        self._device = preferred_device_id

    def memory_type(self) -> MemoryType:
        """Return the kind of memory."""
        return self._kind

    def memory_type_id(self) -> int:
        """Return the device's number."""
        return self._device


class InferenceTrace:
    """The trace that a request belongs to. Given to a request to another model, it makes that one a part of the first."""

    __slots__ = ("_context", "_request_id")

    def __init__(self, context: Mapping[str, str] | None = None, request_id: int = 0) -> None:
        self._context = context
        self._request_id = request_id

    def get_context(self) -> str | None:
        """Return OpenTelemetry's context as a JSON object, None when the request isn't traced so."""
        return json.dumps(self._context) if self._context else None


UINT32_MAX, UINT64_MAX = 2**32 - 1, 2**64 - 1


class RequestFields(NamedTuple):
    """What a request is made of, with Triton's names and in its order. `timeout` is in microseconds, 0 for none;
    `model_version` -1 is the latest.
    """

    request_id: str = ""
    correlation_id: int | str = 0
    inputs: Sequence[Tensor] = ()
    requested_output_names: Sequence[str] = ()
    model_name: str = ""
    model_version: int = -1
    flags: int = 0
    timeout: int = 0
    preferred_memory: PreferredMemory | None = None
    trace: InferenceTrace | None = None
    parameters: Mapping[str, Parameter] | None = None


class InferenceRequest:
    """See the module."""

    __slots__ = (
        "__weakref__",
        "_fields",
        "_inputs",
        "_is_closed",
        "_preferred_memory",
        "_sender",
        "_trace",
        "is_rescheduled",
        "runtime_id",
    )

    _fields: CallMessage
    _preferred_memory: PreferredMemory | None
    _sender: InferenceResponseSender | None
    _trace: InferenceTrace | None

    def __init__(self, *values: Any, **named: Any) -> None:
        """Takes what `RequestFields` has, by place or name. Raises TritonModelException when one has the wrong type."""
        # First, since an exception below ends in `__del__`.
        self.runtime_id = 0
        self._is_closed = True
        self.is_rescheduled = False
        self._sender = None
        given = RequestFields(*values, **named)
        for index, tensor in enumerate(given.inputs):
            check_type(f"item {index} of inputs", tensor, Tensor)
        for index, name in enumerate(given.requested_output_names):
            check_type(f"item {index} of requested_output_names", name, str)
        check_type("request_id", given.request_id, str)
        check_type("model_name", given.model_name, str)
        correlation_id = given.correlation_id
        self._inputs = list(given.inputs)
        self._preferred_memory = given.preferred_memory or PreferredMemory()
        self._trace = given.trace or InferenceTrace()
        self._fields = {
            "inputs": [],
            "outputs": list(given.requested_output_names),
            "id": given.request_id,
            "parameters": checked_parameters(given.parameters),
            "correlation_id": (
                correlation_id if type(correlation_id) is str else checked_whole("correlation_id", correlation_id, UINT64_MAX)
            ),
            "flags": checked_whole("flags", given.flags, UINT32_MAX),
            "timeout_us": checked_whole("timeout (in microseconds)", given.timeout, UINT64_MAX),
            "model": given.model_name,
            "version": "" if int(given.model_version) < 0 else str(int(given.model_version)),
        }

    @classmethod
    def _received(cls, request_id: int, message: RequestMessage, tensors: list[Tensor]) -> InferenceRequest:
        """Return a request of the server's. `message` is shared with others: it is only read."""
        request = cls.__new__(cls)
        request.runtime_id = request_id
        request._fields = message  # type: ignore[assignment]
        request._inputs = tensors
        request._is_closed = request.is_rescheduled = False
        request._sender = request._trace = request._preferred_memory = None
        return request

    # What it says.

    def inputs(self) -> list[Tensor]:
        """Return the input tensors."""
        return self._inputs

    def request_id(self) -> str:
        """Return the client's name for the request, "" without one."""
        return self._fields.get("id", "")

    def correlation_id(self) -> int | str:
        """Return the sequence's id; 0 or "" outside a sequence."""
        return self._fields.get("correlation_id", 0)

    def flags(self) -> int:
        """Return the sum of TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and …_END, 0 for neither."""
        return self._fields.get("flags", 0)

    def set_flags(self, flags: int) -> None:
        """Change the flags; of a request to another model, before it is sent."""
        self._fields = {**self._fields, "flags": checked_whole("flags", flags, UINT32_MAX)}

    def timeout(self) -> int:
        """Return the request's timeout in microseconds, 0 for none."""
        return self._fields.get("timeout_us", 0)

    def priority(self) -> int:
        """Return the request's priority, 0 for the model's default."""
        return self._fields.get("priority", 0)

    def parameters(self) -> str:
        """Return the custom parameters as a JSON object."""
        return json.dumps(self.parameters_dict())

    def parameters_dict(self) -> dict[str, Parameter]:
        """Return a copy of the custom parameters: like requests share theirs."""
        return dict(self._fields.get("parameters", ()))

    def requested_output_names(self) -> list[str]:
        """Return the names of the outputs that the client wants, in its order."""
        return list(self._fields.get("outputs", ()))

    def model_name(self) -> str:
        """Return the name of the model to call; "" for a request to answer."""
        return self._fields.get("model", "")

    def model_version(self) -> int:
        """Return the version of the model to call, -1 for the latest."""
        return int(self._fields.get("version") or -1)

    def preferred_memory(self) -> PreferredMemory:
        """Return where a called model's outputs should lie."""
        return self._preferred_memory or PreferredMemory()

    def trace(self) -> InferenceTrace:
        """Return the trace, to be given to requests that are made for this one."""
        if self._trace is None:
            self._trace = InferenceTrace(self._fields.get("trace"), self.runtime_id)
        return self._trace

    # How it ends.

    def is_cancelled(self) -> bool:
        """Return whether the client is gone, so that an answer isn't wanted any more."""
        return bool(self.runtime_id) and host.current().is_cancelled(self.runtime_id)

    def get_response_sender(self) -> InferenceResponseSender:
        """Return the request's sender, the same each time. Raises TritonModelException for a request that isn't to be answered,
        or is answered already.
        """
        if not self.runtime_id:
            raise TritonModelException("a request that the model made itself has no response sender: it isn't to be answered")
        if self._sender is None:
            if self._is_closed:
                raise TritonModelException("the request is answered already: it has no response sender any more")
            self._sender = InferenceResponseSender(self.runtime_id)
        return self._sender

    def set_release_flags(self, flags: int) -> None:
        """Say what becomes of the request when `execute` has returned: TRITONSERVER_REQUEST_RELEASE_ALL, it is done with, or
        TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, it comes again in a later batch. Raises TritonModelException for other flags,
        and for RESCHEDULE where the config has no `iterative_sequence`.
        """
        if flags not in (RELEASE_ALL, RELEASE_RESCHEDULE):
            raise TritonModelException(
                f"release flags {flags}: must be RELEASE_ALL ({RELEASE_ALL}) or RESCHEDULE ({RELEASE_RESCHEDULE})"
            )
        if flags == RELEASE_RESCHEDULE and not (self.runtime_id and host.current().is_iterative):
            raise TritonModelException(
                "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE is for the requests of a model whose config has "
                "sequence_batching { iterative_sequence: true }"
            )
        self.is_rescheduled = flags == RELEASE_RESCHEDULE

    @property
    def has_sender(self) -> bool:
        """Whether the model has asked for the response sender."""
        return self._sender is not None

    @property
    def has_answer(self) -> bool:
        """Whether the response sender has sent something."""
        return self._sender is not None and self._sender.has_answer

    def close(self) -> None:
        """Take the request as answered by what `execute` returned; nothing can be sent any more. For the runtime."""
        self._is_closed = True
        if self._sender is not None:
            self._sender.close()

    # Calls of other models.

    def exec(self, decoupled: bool = False) -> Any:
        """Send the request to the model it names, and block for the InferenceResponse; with `decoupled`, return a
        ResponseIterator at once.

        An error of the called model is a response with an error. Raises TritonModelException when the call can't be made.
        """
        call = self._call(decoupled)
        return ResponseIterator(call) if decoupled else next(call.responses(), None) or _no_response()

    def async_exec(self, decoupled: bool = False) -> Awaitable[Any]:
        """The same for a coroutine: the request is sent at once, what is returned is to be awaited."""
        call = self._call(decoupled)
        return _iterator(call) if decoupled else _only_response(call)

    def _call(self, is_decoupled: bool) -> Call:
        if not self.model_name():
            raise TritonModelException("the request names no model to call: give it a model_name")
        return host.current().call(self, is_decoupled=is_decoupled)

    def _message(self) -> CallMessage:
        """Return the request as a call, without its tensors."""
        trace = self._trace or InferenceTrace()
        message: CallMessage = {**self._fields, "caller": trace._request_id}
        if trace._context:
            message["trace"] = dict(trace._context)
        return message

    def __del__(self) -> None:
        if not self._is_closed and self._sender is None:
            host.current().drop_request(self.runtime_id)


async def _only_response(call: Call) -> InferenceResponse:
    first: InferenceResponse | None = None
    try:
        # To the end, so that the call is over when this returns.
        async for response in call.responses_async():
            first = first or response
    finally:
        call.cancel()
    return first or _no_response()


async def _iterator(call: Call) -> ResponseIterator:
    return ResponseIterator(call)


def _no_response() -> InferenceResponse:
    return InferenceResponse(error=TritonError("the called model has sent no response"))


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """Return the input of that name, None when there is none."""
    return next((tensor for tensor in inference_request.inputs() if tensor.name() == name), None)

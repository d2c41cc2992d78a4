"""One EXECUTE in the worker, from its frame to its RESULT or RETURNED.

Owns the rules of what `execute` may return. Each request of the batch gets what is its own: answers are never paired by guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from naiad.worker.api.errors import TritonModelException
from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse
from naiad.worker.batches import BlockWriter, ResultTails, as_json, received_requests
from naiad.worker.frames import FLAG_FAILED, FLAG_FINAL, FLAG_RELEASED, NO_BLOCK, Frame, Kind, pack
from naiad.worker.messages import RequestMessage, ResponseMessage
from naiad.worker.runtime import Runtime


class ContractError(Exception):
    """What the model did against its contract; the text is for the client."""


class Batch:
    """See the module. `requests` are for `execute`; one of the `take…` methods and then `reply` are called once."""

    def __init__(
        self, frame: Frame, messages: Sequence[RequestMessage], runtime: Runtime, model_name: str, tails: ResultTails
    ) -> None:
        self._frame = frame
        self._messages = messages
        self._runtime = runtime
        self._model_name = model_name
        self._tails = tails
        self._lease = runtime.lend(frame)
        self._block = NO_BLOCK
        self._responses: list[ResponseMessage] | None = None
        self._error = ""
        runtime.open_requests(frame.id, messages)
        self.requests = received_requests(frame.id, messages, self._lease.array)

    def take(self, returned: Any) -> None:
        """Take what `execute` returned. Raises ContractError when it may not return that."""
        requests, self.requests = self.requests, []
        if self._runtime.is_decoupled:
            if returned is not None:
                raise ContractError(
                    f"Python model '{self._model_name}' is using the decoupled mode and the execute function must return None, "
                    f"it returned a {type(returned).__name__}"
                )
            for request in requests:
                if request.is_rescheduled:
                    self._reschedule(request)
            return
        _check(returned, len(requests))
        writer = BlockWriter()
        self._responses = [self._message(*item, writer) for item in zip(requests, self._messages, returned)]
        try:
            self._block = self._runtime.write(writer)
        except TritonModelException as error:
            self._responses = [{"error": ("INTERNAL", str(error))} for _ in requests]

    def take_error(self, text: str) -> None:
        """Take that `execute` raised, or returned what it may not: every request without an answer gets `text`."""
        self._error = text
        self._responses = None
        for index in range(len(self._messages)):
            self._runtime.open.pop(self._frame.id + index, None)
        # Last: a request that dies while it is open says that it was let go.
        self.requests = []

    def fail_open(self, text: str) -> None:
        """The same when the batch's reply is out already: end each request that isn't ended by an error of its own."""
        for index in range(len(self._messages)):
            number = self._frame.id + index
            if self._runtime.open.pop(number, None) is not None:
                self._runtime.say(Kind.RESPONSE, number, {"error": ["INTERNAL", text]}, flags=FLAG_FINAL)
        self.requests = []

    def reply(self, duration_ns: int) -> bytes:
        """Return the frame that ends the batch. What the caller still holds of the tensors keeps their memory in use."""
        frame = self._frame
        flags = FLAG_RELEASED if self._lease.settle() and frame.size else 0
        if self._responses is not None:
            tail = self._tails.write(self._responses)
            return pack(Kind.RESULT, frame.id, tail, flags=flags, block=self._block, value=duration_ns)
        tail = b""
        if self._error:
            flags |= FLAG_FAILED
            tail = as_json({"error": ["INTERNAL", self._error]})
        return pack(Kind.RETURNED, frame.id, tail, flags=flags, value=duration_ns)

    def _reschedule(self, request: InferenceRequest) -> None:
        request.close()
        self._runtime.reschedule(request.runtime_id)

    def _message(
        self,
        request: InferenceRequest,
        message: RequestMessage,
        response: InferenceResponse | None,
        writer: BlockWriter,
    ) -> ResponseMessage:
        if response is None:
            if request.is_rescheduled:
                self._reschedule(request)
                return {"none": True}
            if request.has_sender:
                return {"none": True}
            error = (
                f"execute of model '{self._model_name}' returned None for this request, which is allowed only when its "
                "response sender answers it"
            )
        request.close()
        self._runtime.open.pop(request.runtime_id, None)
        if response is None:
            return {"error": ("INTERNAL", error)}
        if request.is_rescheduled:
            return {"error": ("INTERNAL", f"model '{self._model_name}' returned a response to a request that it wants again")}
        if request.has_answer:
            error = f"model '{self._model_name}' answered the request by its response sender and returned a response too"
            return {"error": ("INTERNAL", error)}
        return self._runtime.message_of(response, message.get("outputs", ()), writer)


def _check(returned: Any, count: int) -> None:
    if not isinstance(returned, list):
        raise ContractError(f"Expected a list in the execute return, found type '{type(returned).__name__}'")
    if len(returned) != count:
        raise ContractError(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size "
            f"is:{count}, and InferenceResponse(s) size is:{len(returned)}: expected {count} responses, got {len(returned)}"
        )
    for item in returned:
        if item is not None and not isinstance(item, InferenceResponse):
            raise ContractError(
                "Expected an 'InferenceResponse' object in the execute function return list, found type "
                f"'{type(item).__name__}'"
            )

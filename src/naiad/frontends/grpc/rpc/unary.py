"""RPCs of one request and one response, answered at once or by a task.

Owns the reading of the request message, the rule that there is exactly one, and the task's life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable

from google.protobuf.message import DecodeError

from naiad.errors import Code, InferenceServerError, internal, invalid_argument
from naiad.frontends.grpc.call import CallTransport
from naiad.frontends.grpc.fault import logged_fault
from naiad.proto import Message, message_class
from naiad.request.call import Buffer
from naiad.request.service import InferenceService

Answer = Callable[[InferenceService, Message], "Message | Awaitable[Message]"]


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """An RPC: its name, the group by which it is restricted, the full name of its request message, and what answers it."""

    name: str
    category: str
    request: str
    answer: Answer


class UnaryRpc:
    """See the module."""

    __slots__ = ("_has_message", "_method", "_service", "_task", "_transport")

    def __init__(self, method: UnaryMethod, service: InferenceService, transport: CallTransport) -> None:
        self._method = method
        self._service = service
        self._transport = transport
        self._task: asyncio.Future[Message] | None = None
        self._has_message = False

    def on_message(self, message: Buffer) -> None:
        """See `Rpc.on_message`."""
        name = self._method.name
        if self._has_message:
            raise internal(f"{name} takes one request message, a second one came")
        self._has_message = True
        try:
            request = message_class(self._method.request).FromString(bytes(message))
        except DecodeError as error:
            raise invalid_argument(f"the message is no {self._method.request}: {error}") from error
        answer = self._method.answer(self._service, request)
        if isawaitable(answer):
            # A task of the answer itself: one that is cancelled before its first step leaves no coroutine that never ran.
            self._task = asyncio.ensure_future(answer)
            self._task.add_done_callback(self._take)
        else:
            self._reply(answer)

    def on_half_close(self) -> None:
        """See `Rpc.on_half_close`."""
        if not self._has_message:
            raise internal(f"{self._method.name} takes one request message, none came")

    def on_cancel(self, error: InferenceServerError | None) -> None:
        """See `Rpc.on_cancel`."""
        if self._task is not None:
            self._task.cancel()

    def _take(self, task: asyncio.Future[Message]) -> None:
        try:
            self._reply(task.result())
        except asyncio.CancelledError:
            self._transport.finish(InferenceServerError(Code.CANCELLED, f"{self._method.name} was cancelled by the server"))
        except InferenceServerError as error:
            self._transport.finish(error)
        except Exception:
            self._transport.finish(logged_fault())

    def _reply(self, response: Message) -> None:
        self._transport.send([response.SerializeToString()])
        self._transport.finish()

"""The health service of gRPC: `Check` answers once, `Watch` tells every change.

Owns which names have a health and what it is called, and the calls that watch. Readiness itself is the service's, which says
when it changes: nobody polls, and what doesn't change costs nothing however many watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError

from naiad.errors import InferenceServerError, internal, invalid_argument, unavailable
from naiad.frontends.grpc.call import SHUTTING_DOWN, CallTransport
from naiad.proto import Message, message_class
from naiad.request.call import Buffer
from naiad.request.service import InferenceService

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3

_REQUEST = "grpc.health.v1.HealthCheckRequest"
_RESPONSE = "grpc.health.v1.HealthCheckResponse"
# A watched name is kept; no model's is longer.
_LONGEST_NAME = 1024
# So many are told in one turn of the loop: each may be a write to a socket of its own.
_TOLD_IN_A_TURN = 32


class HealthBoard:
    """What the health service says, and who watches it. Loop thread only.

    "" and the names of the services served here stand for the server, a model's name for that model.
    """

    def __init__(self, service: InferenceService, own_services: Iterable[str], call_soon: Callable[..., object]) -> None:
        self._service = service
        self._own_services = frozenset(("", *own_services))
        self._call_soon = call_soon
        self._watching: dict[WatchRpc, None] = {}
        self._still_to_tell: list[WatchRpc] = []
        self._has_changed = False
        self._is_due = False
        service.on_change(self._on_change)

    def check(self, _service: InferenceService, request: Message) -> Message:
        """Return the health of what is asked for. As in Triton, a name that isn't known asks for the server's.

        Raises UNAVAILABLE once the server drains.
        """
        if self._service.is_draining():
            raise unavailable(SHUTTING_DOWN)
        status = self.status(request.service)
        return _response(self.status("") if status == SERVICE_UNKNOWN else status)

    def status(self, name: str) -> int:
        """Return the status of a name as the number of `ServingStatus`."""
        is_serving = self._service.is_ready() if name in self._own_services else self._service.is_model_serving(name)
        if is_serving is None:
            return SERVICE_UNKNOWN
        return SERVING if is_serving else NOT_SERVING

    @property
    def watch_count(self) -> int:
        """How many calls watch."""
        return len(self._watching)

    def watch(self, transport: CallTransport) -> WatchRpc:
        """Begin a call of `Watch`. Raises UNAVAILABLE once the server drains."""
        if self._service.is_draining():
            raise unavailable(SHUTTING_DOWN)
        watch = WatchRpc(self, transport)
        self._watching[watch] = None
        return watch

    def remove(self, watch: WatchRpc) -> None:
        """Tell this call nothing further."""
        self._watching.pop(watch, None)

    def _on_change(self) -> None:
        self._has_changed = True
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._tell_some)

    def _tell_some(self) -> None:
        """Go on with the round of those to be told. A change within a round begins another one behind it."""
        if not self._still_to_tell:
            self._has_changed = False
            self._still_to_tell = list(self._watching)
        statuses: dict[str, int] = {}
        is_draining = self._service.is_draining()
        for watch in self._still_to_tell[:_TOLD_IN_A_TURN]:
            if watch not in self._watching:
                continue
            if watch.name is not None:
                if watch.name not in statuses:
                    statuses[watch.name] = self.status(watch.name)
                watch.tell(statuses[watch.name])
            if is_draining:
                self.remove(watch)
                watch.end(unavailable(SHUTTING_DOWN))
        del self._still_to_tell[:_TOLD_IN_A_TURN]
        self._is_due = bool(self._still_to_tell) or self._has_changed
        if self._is_due:
            self._call_soon(self._tell_some)


class WatchRpc:
    """One call of `Watch`. A client that doesn't read gets the latest status when it reads again, nothing between.

    `name` is what it asked for, None until it has.
    """

    __slots__ = ("_board", "_has_ended", "_is_blocked", "_latest", "_sent", "_transport", "name")

    def __init__(self, board: HealthBoard, transport: CallTransport) -> None:
        self._board = board
        self._transport = transport
        self._has_ended = False
        self._is_blocked = False
        self._latest = self._sent = 0
        self.name: str | None = None

    def on_message(self, message: Buffer) -> None:
        """See `Rpc.on_message`."""
        if self.name is not None:
            raise internal("Watch takes one request message, a second one came")
        try:
            name = message_class(_REQUEST).FromString(bytes(message)).service
        except DecodeError as error:
            raise invalid_argument(f"the message is no {_REQUEST}: {error}") from error
        if len(name) > _LONGEST_NAME:
            raise invalid_argument(f"'service' has {len(name)} characters, at most {_LONGEST_NAME} are allowed")
        self.name = name
        self.tell(self._board.status(name))

    def on_half_close(self) -> None:
        """See `Rpc.on_half_close`."""
        if self.name is None:
            raise internal("Watch takes one request message, none came")

    def on_cancel(self, error: InferenceServerError | None) -> None:
        """See `Rpc.on_cancel`."""
        self._has_ended = True
        self._board.remove(self)

    def tell(self, status: int) -> None:
        """Send the status if the client doesn't know it, as soon as it has read what was sent before."""
        self._latest = status
        if self._is_blocked or self._has_ended or status == self._sent:
            return
        if self._transport.when_writable(self._go_on):
            self._sent = status
            self._transport.send([_response(status).SerializeToString()])
        else:
            self._is_blocked = True

    def end(self, error: InferenceServerError) -> None:
        """End the call."""
        self._has_ended = True
        self._transport.finish(error)

    def _go_on(self) -> None:
        self._is_blocked = False
        self.tell(self._latest)


def _response(status: int) -> Message:
    return message_class(_RESPONSE)(status=status)

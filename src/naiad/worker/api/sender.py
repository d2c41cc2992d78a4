"""`InferenceResponseSender`: answers a request by as many responses as its model may send, from any thread, at any time.

Owns the rules of order and end. Back-pressure is the host's: it blocks `send`.
"""

from __future__ import annotations

import threading

from naiad.worker.api import host
from naiad.worker.api.errors import TritonModelException, check_type
from naiad.worker.api.response import InferenceResponse

FINAL = 1
"""The flag that ends the responses to a request."""


class InferenceResponseSender:
    """See the module; a model gets it from its request, which may be let go meanwhile.

    When nobody holds it any more and its end wasn't sent, the host ends the request with an error.
    """

    __slots__ = ("__weakref__", "_count", "_has_ended", "_is_closed", "_lock", "_request_id")

    def __init__(self, request_id: int) -> None:
        self._request_id = request_id
        self._lock = threading.Lock()
        self._count = 0
        self._is_closed = False
        self._has_ended = False

    @property
    def has_answer(self) -> bool:
        """Whether something was sent."""
        return self._count > 0 or self._has_ended

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Send a response, with the flag TRITONSERVER_RESPONSE_COMPLETE_FINAL the last one; with the flag alone, the end.

        Blocks while the client has many unread responses. A model that isn't decoupled sends exactly one response, which ends
        the request. Raises TritonModelException when it may not be sent; the request then is as before.
        """
        if flags not in (0, FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        if response is not None:
            check_type("what is sent", response, InferenceResponse)
        with self._lock:
            self._send(response, is_final=bool(flags))

    def is_cancelled(self) -> bool:
        """Return whether the client is gone."""
        return host.current().is_cancelled(self._request_id)

    def close(self) -> None:
        """Take the request as answered in another way: nothing can be sent any more. For the runtime."""
        self._is_closed = self._has_ended = True

    def _send(self, response: InferenceResponse | None, *, is_final: bool) -> None:
        if self._is_closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        server = host.current()
        if server.is_decoupled:
            server.send_response(self._request_id, response, is_final)
            self._has_ended = is_final
        elif response is not None:
            if self._count:
                raise TritonModelException("Non-decoupled model cannot send more than one response.")
            # The only one is the last one, whether or not the flag comes apart.
            server.send_response(self._request_id, response, True)
            self._has_ended = True
        elif not self._count:
            raise TritonModelException("Non-decoupled model cannot send the final flag before it has sent a response.")
        self._count += response is not None
        self._is_closed = is_final

    def __del__(self) -> None:
        if not self._has_ended:
            host.current().drop_request(self._request_id)

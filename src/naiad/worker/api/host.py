"""`Host`: what the objects that a model holds need of the worker around them.

Owns that seam. The worker's runtime implements it and installs itself once, before the model is imported; a process has one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from naiad.worker.api.request import InferenceRequest
    from naiad.worker.api.response import InferenceResponse


class Call(Protocol):
    """A nested call under way: its responses in order. Any thread."""

    def responses(self) -> Iterator[InferenceResponse]:
        """Yield the responses, blocking for each; ends after the final one. An error is a response with an error.

        A final flag without a response yields a last response without tensors, as Triton's iterator does.
        """

    def responses_async(self) -> AsyncIterator[InferenceResponse]:
        """The same for a coroutine."""

    def cancel(self) -> None:
        """Give the call up: the callee's request is cancelled, no further response comes. Also after the end, to no effect."""


class Host(Protocol):
    """See the module. Every method may be called on any thread and raises TritonModelException with what is wrong."""

    @property
    def is_decoupled(self) -> bool:
        """Whether the model may send any number of responses to a request."""

    @property
    def is_iterative(self) -> bool:
        """Whether the model may want a request again, in a later batch."""

    @property
    def version_directory(self) -> str:
        """The folder of the model's version."""

    def send_response(self, request_id: int, response: InferenceResponse | None, is_final: bool) -> None:
        """Send a response, or only the end. Blocks while the client has too many unread responses. Sends nothing and returns
        at once when the request was cancelled.
        """

    def drop_request(self, request_id: int) -> None:
        """Say that nobody holds the request's sender any more and its end was never sent. May run in a garbage collection: it
        takes no lock.
        """

    def is_cancelled(self, request_id: int) -> bool:
        """Return whether the request's client is gone."""

    def call(self, request: InferenceRequest, *, is_decoupled: bool) -> Call:
        """Begin a call of another model, with the tensors as they are now."""

    def query(self, name: str, arguments: dict[str, Any]) -> Any:
        """Put a question to the server and block for the answer (see `Kind.QUERY`)."""

    def change_metric(self, message: dict[str, Any]) -> None:
        """Tell the server of a custom metric (see `worker.api.metrics`), in the order of the calls; doesn't wait. May run in a
        garbage collection: it takes no lock.
        """

    def log(self, level: str, message: str) -> None:
        """Write to the server's log: level INFO, WARNING, ERROR or VERBOSE."""


_installed: list[Host] = []


def install(host: Host) -> None:
    """Make `host` the process's host, in place of one before it."""
    _installed[:] = [host]


def current() -> Host:
    """Return the process's host. Raises RuntimeError outside a worker: most of the model API needs a server around it."""
    if not _installed:
        raise RuntimeError("this works inside a Naiad worker process only: the model isn't served")
    return _installed[0]

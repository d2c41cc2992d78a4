"""`Model`: the class that a model file derives its own from.

Owns the contract. How the server drives it is the adapter's part.
"""

from __future__ import annotations

from typing import Any, ClassVar

from naiad.model.context import Context
from naiad.worker.api.model_config import ModelConfig


class Model:
    """See `naiad.model`. A class defines `infer` or `stream`, all else is as wanted.

    Each copy of a model runs in a process of its own, on one thread.
    """

    batched: ClassVar[bool] = False
    """Whether `infer` takes arrays by name, the requests of a batch joined along the first dim, and returns such arrays with as
    many rows. Requests whose arrays can't be joined run one after the other."""

    concurrent_streams: ClassVar[int] = 1
    """So many requests at a time are answered by a `stream` that is no coroutine, each on a thread; the others wait."""

    @staticmethod
    def configure(config: ModelConfig) -> None:
        """Complete the model's configuration, before any copy is loaded: inputs, outputs, the largest batch."""

    def load(self, context: Context) -> None:
        """Get ready; an exception here fails the load, with its text."""

    def infer(self, requests: Any) -> Any:
        """Return a list with an answer to each request, in order: a Response, a dict of arrays, or a ModelError.

        With `batched`: take a dict of arrays, return one. May be `async def`. An exception fails all requests of the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither infer nor stream")

    def stream(self, request: Any) -> Any:
        """Yield any number of answers to a request, as `infer` returns them. May be an `async def`; then requests run
        concurrently. Stops at the next `yield` when the client is gone. Such a model is decoupled.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither infer nor stream")

    def is_ready(self) -> bool:
        """Return whether requests may come; asked now and then."""
        return True

    def unload(self) -> None:
        """Give everything back; no request comes any more."""

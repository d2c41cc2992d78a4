"""Schedulers that start only when so much is queued, for tests of batching that must be exact.

Owns Triton's two environment variables for that, read when a model is loaded. Doesn't own queues: schedulers say what they
hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from naiad.errors import invalid_argument

REQUESTS_VARIABLE = "TRITONSERVER_DELAY_SCHEDULER"
BACKLOG_VARIABLE = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"


@dataclass(slots=True)
class Hold:
    """Holds a scheduler back, once, until it has `request_count` requests queued, and `backlog_count` in its backlog of
    sequences.
    """

    request_count: int = 0
    backlog_count: int = 0

    def is_on(self, request_count: int, backlog_count: int = 0) -> bool:
        """Return whether to wait on; once it is over, it is over for good."""
        if request_count < self.request_count or backlog_count < self.backlog_count:
            return True
        self.request_count = self.backlog_count = 0
        return False

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return not (self.request_count or self.backlog_count)


def read_hold(environment: Mapping[str, str]) -> Hold:
    """Return what the environment says. Raises INVALID_ARGUMENT for a value that isn't a whole number >= 0."""
    return Hold(_count(environment, REQUESTS_VARIABLE), _count(environment, BACKLOG_VARIABLE))


def _count(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "") or "0"
    if not (text.isascii() and text.isdigit()):
        raise invalid_argument(f"environment variable {name} is '{text}', must be a whole number >= 0")
    return int(text)

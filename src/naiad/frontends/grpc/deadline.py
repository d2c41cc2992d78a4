"""The deadline of a call (`grpc-timeout`): when it passes, and what its client is told.

Owns both, for every carrier of calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from naiad.errors import Code, InferenceServerError

# A deadline nearer than this has passed before anything could be done.
_EXPIRED_SECONDS = 20e-6


def start_deadline(
    loop: asyncio.AbstractEventLoop, timeout_s: float, fail: Callable[[InferenceServerError], None]
) -> asyncio.TimerHandle | None:
    """Have `fail` called with DEADLINE_EXCEEDED after `timeout_s` seconds, at once when that is no time; return the timer."""
    if timeout_s < _EXPIRED_SECONDS:
        fail(_expired())
        return None
    return loop.call_later(timeout_s, lambda: fail(_expired()))


def deadline_ns(timeout_s: float) -> int:
    """Return the monotonic time at which a call that comes now with this `grpc-timeout` is given up."""
    return time.monotonic_ns() + int(timeout_s * 1e9)


def _expired() -> InferenceServerError:
    return InferenceServerError(Code.DEADLINE_EXCEEDED, "Deadline Exceeded: the call's grpc-timeout has passed")

"""Waiting for a condition of another process, which can't tell by itself: a bounded poll."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(is_true: Callable[[], object], timeout_s: float = 10, what: str = "the condition") -> None:
    """Return as soon as `is_true()` is; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.01)

"""What a program that only serves changes of its process while it does: signal handlers, and how threads take turns.

Owns both, and that all is as it was afterwards.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from naiad.server.process import SWITCH_INTERVAL_SECONDS


@contextmanager
def quick_threads() -> Iterator[None]:
    """Let a thread wait less for a busy one, as in a process that only serves."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def stop_signals(ask_to_stop: Callable[[], None]) -> Iterator[None]:
    """Call `ask_to_stop` for the first SIGINT or SIGTERM; from then on, and in the end, all is as it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(_number: int, _frame: FrameType | None) -> None:
        restore()
        ask_to_stop()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()

"""Seeing that a child process has ended.

Owns the watch, by the process itself: the end of a socket or a pipe says nothing, since what the child forked may hold it open.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable


class ExitWatch:
    """Calls `on_exit` once, on the loop thread, when `process` has ended. It isn't reaped yet, or it is on systems without
    descriptors of processes, where a thread waits for it.
    """

    def __init__(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]) -> None:
        self._loop = loop
        self._on_exit = on_exit
        self._process = process
        self._fd = _pidfd(process.pid)
        if self._fd is None:
            threading.Thread(target=self._wait, name=f"naiad-wait-{process.pid}", daemon=True).start()
        else:
            loop.add_reader(self._fd, self._ended)

    def _ended(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
        self._on_exit()

    def _wait(self) -> None:
        self._process.wait()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended)


def _pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, None where the system has none to give."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None

"""What a worker writes to stdout and stderr: read line by line into the server's log.

Owns the two pipes, and the end of stderr for the report of a death. How many lines the log takes is `model_log`'s part.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from naiad.execution.process.life.child.model_log import MAX_LINE, ModelLog

# Splitting so much into lines takes 0.3 ms at worst.
_READ_BYTES = 1 << 14
# So much is read at the end, when a process that the worker has forked may go on writing: more than a pipe holds.
_LAST_BYTES = 1 << 18
_TAIL_BYTES = 2048
_TAIL_LINES = 20


class LineSplitter:
    """Cuts a stream of bytes into lines without their ends; a longer line than the log takes becomes several."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
        data = self._rest + data
        *lines, self._rest = data.split(b"\n")
        if b"\r" in data:
            lines = [line.removesuffix(b"\r") for line in lines]
        if max(map(len, lines), default=0) > MAX_LINE:
            lines = [piece for line in lines for piece in _pieces(line)]
        while len(self._rest) >= MAX_LINE:
            lines.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        return lines

    def end(self) -> list[bytes]:
        """Return what has come of a line that never ended."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class OutputCapture:
    """Reads both pipes until they end or `finish` is called, and closes them. Loop thread only.

    stdout is logged as information; stderr as warnings, so that tracebacks of the model's threads are seen where information is
    switched off. A line without an end is logged when it ends, at 8 KiB, or with the worker.
    """

    def __init__(self, stdout_fd: int, stderr_fd: int, log: ModelLog, loop: asyncio.AbstractEventLoop) -> None:
        self._tail = b""
        self._stdout = _Pipe(stdout_fd, loop, lambda lines: log.write_lines(logging.INFO, lines), _ignore)
        self._stderr = _Pipe(stderr_fd, loop, lambda lines: log.write_lines(logging.WARNING, lines), self._keep)

    def tail(self) -> str:
        """Return the end of stderr so far: at most 20 lines and 2 KiB."""
        text = self._tail.decode("utf-8", "replace").rstrip("\n")
        return "\n".join(text.split("\n")[-_TAIL_LINES:])

    def finish(self) -> None:
        """Read what has been written, without waiting for the pipes' end, and close them."""
        self._stdout.finish()
        self._stderr.finish()

    def _keep(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]


class _Pipe:
    """One pipe. `on_lines` gets the lines, `on_data` all that is read."""

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        on_lines: Callable[[list[bytes]], None],
        on_data: Callable[[bytes], None],
    ) -> None:
        self._fd = fd
        self._loop = loop
        self._on_lines = on_lines
        self._on_data = on_data
        self._splitter = LineSplitter()
        self._is_open = True
        loop.add_reader(fd, self._read)

    def finish(self) -> None:
        """See `OutputCapture.finish`."""
        for _ in range(_LAST_BYTES // _READ_BYTES):
            if not self._is_open or not self._read():
                break
        self._close()

    def _read(self) -> bool:
        """Take some of what is there; return whether there was any."""
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close()
            return False
        self._on_data(data)
        lines = self._splitter.feed(data)
        if lines:
            self._on_lines(lines)
        return True

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        lines = self._splitter.end()
        if lines:
            self._on_lines(lines)


def _pieces(line: bytes) -> list[bytes]:
    if len(line) <= MAX_LINE:
        return [line]
    return [line[start : start + MAX_LINE] for start in range(0, len(line), MAX_LINE)]


def _ignore(_: bytes) -> None:
    """Keep nothing of it."""

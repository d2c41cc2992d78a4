"""The server's side of the JSON helper: one process, started when it is first needed, and the thread that talks to it.

Owns the process and the order of its work. The thread only copies bytes through pipes, which frees the GIL.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from naiad.errors import Code, InferenceServerError, internal
from naiad.frontends.codec_thread import CodecThread
from naiad.frontends.http.json_helper import frames
from naiad.frontends.http.json_helper.frames import Buffer, Pipe

_COMMAND = (sys.executable, "-m", "naiad.frontends.http.json_helper.child")

_log = logging.getLogger("naiad.http")


@dataclass(frozen=True, slots=True)
class Converted:
    """An answer: `header_length` is the size of the JSON part in `body`, None when all of it is JSON."""

    body: memoryview
    header_length: int | None


Done = Callable[["Converted | InferenceServerError"], None]


class JsonHelper:
    """Loop thread only, but for what runs on its own thread. `close` ends the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = CodecThread(loop, "naiad-json")
        self._process: subprocess.Popen[bytes] | None = None

    def read_request(self, body: Buffer, header_length: int, limit: int, done: Done) -> None:
        """Turn a request with a JSON part of `header_length` bytes into the binary form; `done` is called on the loop thread.

        Raises UNAVAILABLE when too many wait already.
        """
        value = {"header_length": header_length, "limit": limit}
        self._thread.submit(lambda: self._round_trip(frames.READ_REQUEST, value, [body]), done)

    def write_response(self, meta: dict[str, Any], blobs: Sequence[Buffer], done: Done) -> None:
        """Write a response (see `wire.binary_form.response_as_parts`) with JSON outputs; as `read_request`."""
        self._thread.submit(lambda: self._round_trip(frames.WRITE_RESPONSE, meta, blobs), done)

    def close(self) -> None:
        """End the process; whoever still waits for it gets an error."""
        if self._process is not None:
            self._process.kill()
        self._thread.close()
        if self._process is not None:
            _end(self._process)

    def _round_trip(self, kind: int, value: Any, parts: Sequence[Buffer]) -> Converted:
        """Ask the helper and wait for its answer; a helper that died is replaced by the next question."""
        if self._process is None:
            self._process = _start()
        process = self._process
        try:
            frames.send(cast("Pipe", process.stdin), kind, value, parts)
            answer, told, body = frames.receive(cast("Pipe", process.stdout))
        except (OSError, EOFError) as error:
            self._process = None
            _end(process)
            _log.error("the helper process for large JSON ended: %s", error)
            raise internal("the helper process for large JSON ended: try again, or send tensors in the binary form") from error
        if answer == frames.FAILED:
            raise InferenceServerError(Code(told["code"]), told["message"])
        return Converted(body, told)


def _start() -> subprocess.Popen[bytes]:
    # A session of its own: ^C in a terminal is the server's to handle. It ends when its input does.
    return subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True, close_fds=True
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()

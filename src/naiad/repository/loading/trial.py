"""Trials: a model's files are loaded once in a process of their own before the server loads them (`--isolate-load`).

Owns that process from start to end, and what is said of its death: a file that crashes its engine, or takes all memory, ends it
and not the server. What it runs is `trial_child`.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from naiad.devices.inventory import Capability
from naiad.errors import Code, InferenceServerError, invalid_argument, unavailable
from naiad.execution.process.life.child.memory_use import oom_kill_count
from naiad.execution.process.life.death import Ending, cause_of

_CHILD = Path(__file__).with_name("trial_child.py")
_TAIL_BYTES = 4096
_CHUNK_BYTES = 65536

# A process that the child forked may hold its pipes open: this often it is asked whether the child is there.
_CHECK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Trial:
    """What is to be tried: a model as `layout.ModelSource` has it, `config` being its serialised ModelConfig, and the settings
    of the server that matter.
    """

    name: str
    directory: Path
    versions: Mapping[int, Path]
    file_name: str
    config: bytes
    is_auto_complete: bool
    backend_settings: Mapping[str, Mapping[str, str]]
    min_capability: Capability = (0, 0)

    def to_json(self, backend_directory: Path | None) -> bytes:
        """Return the line that the child reads."""
        return json.dumps(
            {
                "name": self.name,
                "directory": str(self.directory),
                "versions": {str(number): str(path) for number, path in self.versions.items()},
                "file_name": self.file_name,
                "config": base64.b64encode(self.config).decode(),
                "is_auto_complete": self.is_auto_complete,
                "backend_settings": {name: dict(settings) for name, settings in self.backend_settings.items()},
                "min_capability": self.min_capability,
                "backend_directory": None if backend_directory is None else str(backend_directory),
                "path": sys.path,
            }
        ).encode()


class Trials:
    """Runs trials; blocking, safe on several threads at once. `stop` and `give_up` are for the loop's thread."""

    def __init__(self, backend_directory: Path | None) -> None:
        self._backend_directory = backend_directory
        self._lock = threading.Lock()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """End the trials that run, which fail with that; no other begins."""
        with self._lock:
            self._is_stopped = True
            for process in self._running.values():
                _kill(process)

    def give_up(self, thread_id: int) -> None:
        """End the trial that a thread waits for, if there is one."""
        with self._lock:
            if thread_id in self._running:
                _kill(self._running[thread_id])

    def run(self, trial: Trial) -> None:
        """Return when the model could be loaded. Raises the InferenceServerError that its loading raises, INVALID_ARGUMENT with
        the end of its output when the process dies of it, UNAVAILABLE when the process can't be started or the server ends.
        """
        with ExitStack() as ends:
            process, answer_fd = self._start(trial.name, ends)
            outcome = _listen(process, answer_fd, trial.to_json(self._backend_directory))
        if self._is_stopped:
            raise unavailable("the server is shutting down")
        if outcome.answer:
            self._take(outcome.answer)
            return
        ending = Ending(process.pid, process.returncode, None, outcome.is_starved, "")
        tail = outcome.tail.decode(errors="replace").strip()
        raise invalid_argument(
            f"model '{trial.name}' can't be loaded: the process that tried it first (--isolate-load), pid {process.pid}, "
            f"{cause_of(ending)[1]}" + (f"; the end of its output:\n{tail}" if tail else "")
        )

    def _start(self, name: str, ends: ExitStack) -> tuple[subprocess.Popen[bytes], int]:
        """Start the child; with `ends` it is gone, whatever it does, and all is closed."""
        answer_fd, their_fd = os.pipe()
        ends.callback(os.close, answer_fd)
        try:
            # The system ends the child together with this thread, which waits for it. A session of its own: ^C in a terminal is
            # the server's to handle, and what the child forks is ended with it.
            process = subprocess.Popen(
                [sys.executable, str(_CHILD), str(their_fd), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(their_fd,),
                start_new_session=True,
            )
        except OSError as error:
            raise unavailable(f"model '{name}': no process can be started to try it (--isolate-load): {error}") from error
        finally:
            os.close(their_fd)
        ends.callback(self._end, process)
        with self._lock:
            self._running[threading.get_ident()] = process
            if self._is_stopped:
                _kill(process)
        return process, answer_fd

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        _kill(process)
        process.wait()
        with self._lock:
            self._running.pop(threading.get_ident(), None)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _take(self, answer: bytes) -> None:
        said = json.loads(answer)
        if said["code"]:
            raise InferenceServerError(Code(said["code"]), said["message"])


@dataclass(frozen=True, slots=True)
class _Outcome:
    """`answer` is empty when the child has died without one; `tail` is the end of what it wrote."""

    answer: bytes
    tail: bytes
    is_starved: bool


def _listen(process: subprocess.Popen[bytes], answer_fd: int, request: bytes) -> _Outcome:
    """Send the request and read until there is a whole answer, or nobody left to give one."""
    assert process.stdin is not None
    assert process.stdout is not None
    oom_kills = oom_kill_count() or 0
    _send(process.stdin, request)
    answer = tail = b""
    with selectors.DefaultSelector() as selector:
        selector.register(answer_fd, selectors.EVENT_READ)
        selector.register(process.stdout, selectors.EVENT_READ)
        while not answer.endswith(b"\n") and selector.get_map():
            ready = selector.select(_CHECK_SECONDS)
            if not ready and process.poll() is not None:
                break
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.fd == answer_fd:
                    answer += chunk
                else:
                    tail = (tail + chunk)[-_TAIL_BYTES:]
    if not answer.endswith(b"\n"):
        # It ends by itself: so the exit code is its own.
        process.wait()
        answer = b""
    return _Outcome(answer, tail, (oom_kill_count() or 0) > oom_kills)


def _send(pipe: IO[bytes], request: bytes) -> None:
    # A child that has died already is seen by its exit code.
    with suppress(BrokenPipeError):
        pipe.write(request + b"\n")
        pipe.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a child and what it has forked."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

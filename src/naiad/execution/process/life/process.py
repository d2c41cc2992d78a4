"""A worker process from its start to its end: its sockets, its memory, its output, its death.

Owns everything of the process and of what the server holds for it, all of which goes with it. Knows no request: frames that
concern requests go to `WorkerHooks`. Loop thread only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from naiad.backends.base import WorkerProgram
from naiad.devices.devices import ANY_CPU, CpuShare
from naiad.errors import InferenceServerError, internal
from naiad.execution.process.life.child.exit_watch import ExitWatch
from naiad.execution.process.life.child.hello import problem_of
from naiad.execution.process.life.child.launch import Launched, launch
from naiad.execution.process.life.child.memory_use import oom_kill_count, resident_bytes
from naiad.execution.process.life.child.model_log import ModelLog
from naiad.execution.process.life.child.output import OutputCapture
from naiad.execution.process.life.child.socket import FrameSocket
from naiad.execution.process.life.death import BrokenWorkerError, Death, Ending, Kill, Reason, WorkerIdentity, death_of
from naiad.execution.process.life.settings import WorkerSettings
from naiad.memory.arena import MEBIBYTE, Arena
from naiad.memory.mapping import Mapping
from naiad.worker.frames import NO_BLOCK, PROGRESS, Frame, Kind, pack, unpack_blocks

# A worker that closed its socket usually ends at once.
_END_SECONDS = 2.0
_CHECK_READY_SECONDS = 5.0
_LARGE_BYTES = 16 * MEBIBYTE
_LOADING = frozenset((Kind.LOAD, Kind.COMPLETE_CONFIG, Kind.INITIALIZE))
_LEVELS = {"VERBOSE": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}

_log = logging.getLogger("naiad.execution")

__all__ = ["BrokenWorkerError", "Death", "WorkerHooks", "WorkerIdentity", "WorkerProcess"]


def _ignore_death(_: Death) -> None:
    """Nobody has to be told."""


def _ignore_room() -> None:
    """Nobody waits for room."""


@dataclass(frozen=True, slots=True)
class WorkerHooks:
    """Who is told of a worker.

    `on_frame` gets the frames that the process doesn't take itself; when it raises BrokenWorkerError or ValueError, the worker
    is killed. `on_death` is called once when the worker has died without `stop`: what it sent before has been taken, its arena
    still is there. `on_room` is called when the worker has released blocks of the server's arena.
    """

    on_frame: Callable[[Frame], None]
    on_death: Callable[[Death], None] = _ignore_death
    on_room: Callable[[], None] = _ignore_room


class WorkerProcess:
    """See the module; `start` makes one. `hooks` may be replaced while it lives.

    `arena` is the server's memory for what it sends, `mapping` the worker's as it is seen here. `death` is None while it lives.
    """

    def __init__(self, launched: Launched, settings: WorkerSettings, identity: WorkerIdentity, hooks: WorkerHooks) -> None:
        loop = asyncio.get_running_loop()
        self.hooks = hooks
        self.death: Death | None = None
        self._loop = loop
        self._launched = launched
        self._settings = settings
        self._identity = identity
        self._log = ModelLog(f"[{identity.model} {identity.instance}] ", loop)
        self._output = OutputCapture(launched.stdout_fd, launched.stderr_fd, self._log, loop)
        self._socket = FrameSocket(launched.control, launched.descriptors, loop, self)
        self.arena = Arena(settings.arena, self._socket.send_segment, self._retire)
        self.mapping = Mapping(writable=False)
        self._hello: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[Death] = loop.create_future()
        self._progress = NO_BLOCK
        self._questions: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_question = 0
        self._killed: Kill | None = None
        self._is_started = self._is_broken = self._is_stopping = self._has_exited = False
        self._end_timer: asyncio.TimerHandle | None = None
        self._oom_kills = oom_kill_count() or 0
        self._own_kinds: dict[int, Callable[[Frame], None]] = {
            Kind.HELLO: self._take_hello,
            Kind.SEGMENT: self._map,
            Kind.SEGMENT_GONE: lambda frame: _let_go([self.mapping.remove(frame.id)]),
            Kind.RELEASE: self._release,
            Kind.DONE: self._take_answer,
            Kind.FAILED: self._take_failure,
            Kind.LOG: self._take_log,
        }
        self._watch = ExitWatch(launched.process, loop, self._on_exit)

    @classmethod
    async def start(
        cls,
        program: WorkerProgram,
        settings: WorkerSettings,
        identity: WorkerIdentity,
        hooks: WorkerHooks,
        share: CpuShare = ANY_CPU,
    ) -> WorkerProcess:
        """Start a worker and wait until it says that it is one.

        Raises InferenceServerError when it can't be started, ends, says nothing within the time, or is none that this server
        can use; nothing of it is left then.
        """
        try:
            launched = launch(program, identity.instance, settings.arena, share)
            try:
                process = cls(launched, settings, identity, hooks)
            except OSError:
                launched.discard()
                raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise internal(f"the worker process of {identity} can't be started with {program.interpreter}: {reason}") from error
        try:
            await process._wait_hello()
        except BaseException:
            await process.stop(0)
            raise
        return process

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._launched.process.pid

    def watch_progress(self) -> list[int] | None:
        """Return the place, for INITIALIZE, where the worker is to write which batch it begins; None when it is gone."""
        if self.death is not None:
            return None
        self._progress = self.arena.allocate(PROGRESS.size)
        self.arena.view(self._progress)[:] = bytes(PROGRESS.size)
        return [self._progress.segment, self._progress.offset]

    @property
    def begun_id(self) -> int:
        """The id of the last EXECUTE that the worker has begun, 0 for none; until `on_death` has returned."""
        if not self._progress.size:
            return 0
        (begun_id,) = PROGRESS.unpack(self.arena.view(self._progress))
        return int(begun_id)

    @property
    def takes_work(self) -> bool:
        """Whether what is sent now arrives, as far as that is known: a death may be known before it is told."""
        return not (self._has_exited or self._socket.is_gone)

    @property
    def queued_bytes(self) -> int:
        """How many bytes of frames it hasn't taken yet."""
        return self._socket.queued_bytes

    def resident_bytes(self) -> int | None:
        """Return how much memory it holds, with what it shares; None when that can't be known, or it has ended."""
        return None if self.death is not None else resident_bytes(self.pid)

    def send(self, *parts: bytes) -> None:
        """Send frames; does nothing when it is gone."""
        self._socket.send(*parts)

    def send_later(self, part: bytes) -> None:
        """Send a frame with the next one, or at the end of this turn of the loop."""
        self._socket.send_later(part)

    async def ask(self, kind: Kind, message: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        """Put a question and return what DONE says.

        Without `timeout_s` there is no limit but the settings' on loading. Raises InferenceServerError when the model raises,
        whose traceback is logged, when the time is up, and when the worker dies; only in the last case it is gone then.
        """
        if self.death is not None:
            raise internal(self.death.text)
        if timeout_s is None and kind in _LOADING:
            timeout_s = self._settings.load_timeout_s or None
        self._last_question += 1
        number = self._last_question
        answer = self._questions[number] = self._loop.create_future()
        self._socket.send(pack(kind, number, json.dumps(message).encode()))
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except asyncio.TimeoutError:
            what = kind.name.lower() + (", see --worker-load-timeout-secs" if kind in _LOADING else "")
            raise internal(f"{self._identity} hasn't answered within {timeout_s:g} seconds (question: {what})") from None
        finally:
            self._questions.pop(number, None)

    async def ask_ready(self) -> bool:
        """Ask the model's `is_ready`; what it raises, and no answer in five seconds, is no."""
        try:
            return bool((await self.ask(Kind.CHECK_READY, {}, _CHECK_READY_SECONDS)).get("is_ready"))
        except InferenceServerError:
            return False  # Its text is in the log; not ready is the whole answer.

    def trim(self) -> None:
        """Give back the server's memory that wasn't used since the last call."""
        _let_go(self.arena.trim(keep_used=True))

    def kill(self, reason: Reason, detail: str) -> None:
        """End it at once; its death has this reason, and `detail` completes "was killed: …". The first call's count."""
        if self._killed is None:
            self._killed = Kill(reason, detail)
        self._kill_session()

    async def stop(self, timeout_s: float) -> None:
        """Let the model finalize and wait for the end; after `timeout_s` seconds, 0 too, it is killed. `on_death` isn't called.

        Returns when nothing is left of it, and its last words are in the log.
        """
        self._is_stopping = True
        try:
            if timeout_s > 0 and self.death is None:
                await self._finalize(timeout_s)
        finally:
            if self.death is None:
                self.kill("stopped", "it is no longer needed")
        await asyncio.shield(self._gone)
        await self._log.wait_written()

    # What comes from the worker: see `FrameHandler`.

    def on_frame(self, frame: Frame) -> None:
        """Take a frame, or pass it on."""
        if self._is_broken:
            return
        take = self._own_kinds.get(frame.kind)
        try:
            if take is None:
                self.hooks.on_frame(frame)
            else:
                take(frame)
        except (BrokenWorkerError, ValueError) as error:
            self.on_broken(str(error))

    def on_broken(self, text: str) -> None:
        """End a worker that can't be trusted further."""
        self._is_broken = True
        self.kill("protocol", f"it sent what no worker sends: {text}")

    def on_end(self) -> None:
        """Give a worker that closed its socket a moment to end by itself: then its exit code is known."""
        if not self._is_stopping and self._end_timer is None:
            detail = "it closed its control socket and didn't end"
            self._end_timer = self._loop.call_later(_END_SECONDS, self.kill, "protocol", detail)

    def _take_hello(self, frame: Frame) -> None:
        problem = problem_of(frame)
        if problem:
            self._is_broken = True
            self.kill("start_failed", problem)
        elif not self._hello.done():
            self._hello.set_result(None)
            self._is_started = True

    def _map(self, frame: Frame) -> None:
        fd = self._socket.receive_descriptor()
        if fd is None:
            raise BrokenWorkerError(f"segment {frame.id} came without its descriptor, or this server may open no more")
        try:
            self.mapping.add(frame.id, fd, frame.size)
        except OSError as error:
            raise BrokenWorkerError(f"segment {frame.id} of {frame.size} bytes can't be mapped: {error.strerror}") from error

    def _release(self, frame: Frame) -> None:
        try:
            blocks = list(unpack_blocks(frame.tail))
        except struct.error as error:
            raise BrokenWorkerError(f"a RELEASE can't be read: {error}") from error
        for segment, offset in blocks:
            self.arena.release(segment, offset)
        self.hooks.on_room()

    def _take_answer(self, frame: Frame) -> None:
        answer = _object(frame)
        question = self._questions.get(frame.id)
        if question is not None and not question.done():
            question.set_result(answer)

    def _take_failure(self, frame: Frame) -> None:
        failure = _object(frame)
        question = self._questions.get(frame.id)
        if question is not None and not question.done():
            self._log.write(logging.ERROR, str(failure.get("traceback", "")))
            question.set_exception(internal(str(failure.get("message", ""))))

    def _take_log(self, frame: Frame) -> None:
        line = _object(frame)
        level = _LEVELS.get(str(line.get("level")))
        if level is None:
            raise BrokenWorkerError(f"a line for the log has the level {line.get('level')!r}")
        self._log.write(level, str(line.get("message", "")))

    # Start and end.

    async def _wait_hello(self) -> None:
        timeout_s = self._settings.start_timeout_s
        try:
            await asyncio.wait_for(self._hello, timeout_s)
        except asyncio.TimeoutError:
            self.kill("start_failed", f"it said nothing within {timeout_s:g} seconds of its start")
            death = await asyncio.shield(self._gone)
            raise internal(death.text) from None

    async def _finalize(self, timeout_s: float) -> None:
        deadline = self._loop.time() + timeout_s
        try:
            await self.ask(Kind.FINALIZE, {}, timeout_s)
        except InferenceServerError as error:
            _log.warning("finalize of %s failed: %s", self._identity, error.message)
        await asyncio.wait((self._gone,), timeout=max(deadline - self._loop.time(), 0))
        if self.death is None:
            _log.warning("%s hasn't ended within %g seconds: its process is killed", self._identity, timeout_s)

    def _on_exit(self) -> None:
        # What the model has forked goes with it. The process isn't reaped yet, so that its number can't be another's.
        self._has_exited = True
        self._kill_session()
        returncode = self._launched.process.wait()
        try:
            self._socket.drain()
        finally:
            self._output.finish()
            self._socket.close()
            self._end(death_of(self._ending(returncode), self._identity))

    def _ending(self, returncode: int) -> Ending:
        is_starved = False
        if returncode == -signal.SIGKILL:
            is_starved = (oom_kill_count() or 0) > self._oom_kills
        return Ending(self.pid, returncode, self._killed, is_starved, self._output.tail())

    def _end(self, death: Death) -> None:
        """Tell everybody who waits, and let the memory go."""
        self.death = death
        if self._end_timer is not None:
            self._end_timer.cancel()
        waiting: list[asyncio.Future[Any]] = [self._hello, *self._questions.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(internal(death.text))
        try:
            if self._is_started and not self._is_stopping:
                self.hooks.on_death(death)
        finally:
            self.arena.close()
            self.mapping.close()
            self._gone.set_result(death)

    def _kill_session(self) -> None:
        """End the worker and all that it has forked into its session."""
        if self._launched.process.returncode is not None:
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # Nothing is left of it; macOS says so in its own way.
            return

    def _retire(self, segment: int) -> None:
        self._socket.send_later(pack(Kind.SEGMENT_GONE, segment))


def _let_go(memory: list[memoryview]) -> None:
    """Let memory go; to unmap half a gigabyte takes some 90 ms, which isn't the loop's to spend."""
    if sum(map(len, memory)) > _LARGE_BYTES:
        threading.Thread(target=memory.clear, name="naiad-unmap").start()


def _object(frame: Frame) -> dict[str, Any]:
    """Return the JSON object in a frame's tail. Raises BrokenWorkerError or ValueError."""
    value = json.loads(frame.tail)
    if not isinstance(value, dict):
        raise BrokenWorkerError(f"the tail of a frame of kind {frame.kind} isn't a JSON object")
    return value

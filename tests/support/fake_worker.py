"""A worker without a process: its memory is real and in this process, its frames are recorded and pushed by the test.

Owns a stand-in for `WorkerProcess` and the worker's end behind it. The model is the test.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
from fake_execution import Probe
from plans import plan as make_plan
from plans import tensor

from naiad.backends.base import WorkerProgram
from naiad.config.plan import ModelPlan
from naiad.execution.output_checks import OutputChecker
from naiad.execution.process.codec.decode import ResponseDecoder
from naiad.execution.process.codec.encode import BatchEncoder
from naiad.execution.process.context import ProcessContext, WorkerHost, WorkerLimits
from naiad.execution.process.instance import ProcessInstance
from naiad.execution.process.life.death import BrokenWorkerError, Death, Reason, WorkerIdentity
from naiad.execution.process.life.process import WorkerHooks
from naiad.execution.process.life.settings import WorkerSettings
from naiad.execution.process.life.start import StartedWorker
from naiad.execution.process.queries import WorkerQueries
from naiad.memory.arena import MEBIBYTE, Arena, ArenaLimits, Block
from naiad.memory.mapping import Mapping
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Batch, Instance
from naiad.worker.api.tensor import Tensor
from naiad.worker.batches import BlockWriter
from naiad.worker.frames import FLAG_FINAL, FLAG_RELEASED, NO_BLOCK, Frame, FrameReader, Kind, pack, pack_blocks, unpack_blocks

ENDED = "the worker process of model 'm' (m_0), pid 1, exited with code 1"


class FakeProcess:
    """See `WorkerProcess`. `sent` are the frames that the worker got, `broken` why it was found to be broken.

    `answers` are what `ask` returns by kind, or raises; `asked` the kinds so far. A worker that is killed dies at once.
    """

    def __init__(self, arena: ArenaLimits | None = None) -> None:
        limits = arena or ArenaLimits()
        self.hooks = WorkerHooks(lambda frame: None)
        self.death: Death | None = None
        self.pid = 1
        self.arena = Arena(limits, self._share, lambda number: None)
        self.mapping = Mapping(writable=False)
        self.sent: list[Frame] = []
        self.broken: list[str] = []
        self.asked: list[Kind] = []
        self.answers: dict[Kind, Any] = {}
        self.held_bytes = 0
        self.stops: list[float] = []
        self.takes_work = True
        self.begun_id = 0  # A batch runs as soon as the one before was answered.
        self._unanswered: list[int] = []
        self.on_stop: Callable[[], None] = lambda: None
        self._reader = FrameReader()
        self._later: list[bytes] = []
        # The worker's end.
        self.seen = Mapping(writable=True)
        self.own = Arena(limits, self._share_back, lambda number: None)

    # See `WorkerProcess`.

    def send(self, *parts: bytes) -> None:
        if self.death is None:
            self._later, parts = [], (*self._later, *parts)
            self._take(b"".join(parts))

    def send_later(self, part: bytes) -> None:
        if self.death is None:
            self._later.append(part)

    def watch_progress(self) -> list[int]:
        return [0, 0]

    def resident_bytes(self) -> int | None:
        return None if self.death is not None else self.held_bytes

    def trim(self) -> None:
        self.arena.trim(keep_used=True)

    async def ask(self, kind: Kind, message: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        self.asked.append(kind)
        answer = self.answers.get(kind, {})
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, reason: Reason, detail: str) -> None:
        self.die(reason, f"the worker was killed: {detail}")

    async def stop(self, timeout_s: float) -> None:
        self.stops.append(timeout_s)
        self.on_stop()
        self.death = self.death or Death("stopped", "it is no longer needed")
        self._close()

    # What the worker does.

    def push(self, kind: Kind, number: int = 0, message: Any = None, **fields: Any) -> None:
        """Send a frame to the server, and what waits for the end of the turn to the worker."""
        tail = message if isinstance(message, bytes) else b"" if message is None else orjson.dumps(message)
        if kind in (Kind.RESULT, Kind.RETURNED) and number in self._unanswered:
            self._unanswered.remove(number)
            self._begin()
        (frame,) = FrameReader().feed(pack(kind, number, tail, **fields))
        try:
            if kind == Kind.RELEASE:
                for block in unpack_blocks(tail):
                    self.arena.release(*block)
                self.hooks.on_room()
            else:
                self.hooks.on_frame(frame)
        except (BrokenWorkerError, ValueError) as error:
            self.broken.append(str(error))
        self.end_turn()

    def end_turn(self) -> None:
        """Deliver what `send_later` keeps."""
        self.send()

    def die(self, reason: Reason = "exit", text: str = ENDED) -> None:
        """End without `stop`."""
        if self.death is None:
            self.death = Death(reason, text)
            self.hooks.on_death(self.death)
            self._close()

    def take(self, kind: Kind) -> list[Frame]:
        """Return the frames of that kind that came since the last call."""
        self.end_turn()
        taken = [frame for frame in self.sent if frame.kind == kind]
        self.sent = [frame for frame in self.sent if frame.kind != kind]
        return taken

    def write(self, *tensors: Tensor) -> tuple[list[Any], Block]:
        """Lay tensors into a block of the worker's own; return where they lie, and it."""
        writer = BlockWriter()
        messages = [writer.add(item) for item in tensors]
        if not writer.size:
            return messages, NO_BLOCK
        block = self.own.allocate(writer.size)
        writer.copy_to(self.own.view(block))
        return messages, block

    def respond(self, number: int, value: Any = None, *, is_final: bool = False) -> None:
        """Send a RESPONSE with the output Y, or without one when `value` is None."""
        flags = FLAG_FINAL if is_final else 0
        if value is None:
            self.push(Kind.RESPONSE, number, flags=flags)
            return
        outputs, block = self.write(Tensor("Y", np.full((1, 2), value, np.float32)))
        self.push(Kind.RESPONSE, number, {"outputs": outputs}, flags=flags, block=block)

    def answer(self, execute: Frame, *, size: int = 2, value: int = 10**9, is_released: bool = True) -> None:
        """Send the RESULT of a batch: to each request Y, `size` elements that are its id."""
        count = len(orjson.loads(execute.tail))
        writer = BlockWriter()
        responses = [
            {"outputs": [writer.add(Tensor("Y", np.full((1, size), execute.id + index, np.float32)))]} for index in range(count)
        ]
        block = self.own.allocate(writer.size)
        writer.copy_to(self.own.view(block))
        self.push(Kind.RESULT, execute.id, responses, block=block, value=value, flags=released(execute, is_released))

    def returned(self, execute: Frame, *, value: int = 10**9, flags: int = 0, message: Any = None) -> None:
        """Send the RETURNED of a batch."""
        self.push(Kind.RETURNED, execute.id, message, flags=flags | released(execute, True), value=value)

    def release(self, *frames: Frame) -> None:
        """Give the blocks of frames back to the server."""
        self.push(Kind.RELEASE, 0, pack_blocks([(frame.segment, frame.offset) for frame in frames if frame.size]))

    def _take(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if frame.kind == Kind.RELEASE:
                for block in unpack_blocks(frame.tail):
                    self.own.release(*block)
                continue
            self.sent.append(frame)
            if frame.kind == Kind.EXECUTE:
                self._unanswered.append(frame.id)
                self._begin()

    def _begin(self) -> None:
        if self._unanswered:
            self.begun_id = self._unanswered[0]

    def _share(self, number: int, fd: int, size: int) -> None:
        self.seen.add(number, os.dup(fd), size)

    def _share_back(self, number: int, fd: int, size: int) -> None:
        self.mapping.add(number, os.dup(fd), size)

    def _close(self) -> None:
        self.arena.close()
        self.mapping.close()


def released(execute: Frame, is_released: bool) -> int:
    return FLAG_RELEASED if is_released and execute.size else 0


class Owner:
    """See `InstanceOwner`. `states` are what it was told, in order."""

    def __init__(self) -> None:
        self.restart_counts: Counter[str] = Counter()
        self.poison_count = 0
        self.states: list[str] = []

    def on_down(self, instance: Instance, reason: str, *, is_lasting: bool) -> None:
        self.states.append("lasting" if is_lasting else "down")

    def on_up(self, instance: Instance) -> None:
        self.states.append("up")


class Pool:
    """Keeps the jobs until a test runs them: `copy` is what the thread does, its completion what follows on the loop."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], Callable[[], None]]] = []

    def submit(self, job: Callable[[], Callable[[], None]]) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()()


class Metrics:
    """See `MetricsKeeper`."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.dropped: list[object] = []

    def apply(self, owner: object, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def value(self, family: str, labels: dict[str, str]) -> float:
        return 3.0

    def drop_owner(self, owner: object) -> None:
        self.dropped.append(owner)


class NoService:
    """Takes calls and keeps them: `calls` are (call, sink, handle)."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fault: Exception | None = None

    def infer(self, call: Any, sink: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        handle = CalleeHandle(sink)
        self.calls.append(SimpleNamespace(call=call, sink=sink, handle=handle))
        return handle


class CalleeHandle:
    """Ends the callee's request at once, as a real one does."""

    def __init__(self, sink: Any) -> None:
        self.cancel_count = 0
        self._probe = Probe()
        self._probe.request.responder.redirect(lambda _: sink)
        self.responder = self._probe.request.responder

    def cancel(self) -> None:
        self.cancel_count += 1
        self._probe.request.cancel()


def xy_plan(*, is_decoupled: bool = False, max_batch_size: int = 8) -> ModelPlan:
    """Return the plan of a model m with an input X and an output Y, both FP32[-1]."""
    made = make_plan(
        [tensor("X", "FP32", [-1], max_batch_size)], [tensor("Y", "FP32", [-1], max_batch_size)], max_batch_size=max_batch_size
    )
    return ModelPlan(**{**{name: getattr(made, name) for name in made.__dataclass_fields__}, "is_decoupled": is_decoupled})


class Bench:
    """An instance on the running loop and all around it. `process` is the worker; a dead one is replaced by `revive`."""

    def __init__(
        self,
        plan: ModelPlan | None = None,
        limits: WorkerLimits | None = None,
        arena: ArenaLimits | None = None,
        settings: WorkerSettings | None = None,
    ) -> None:
        self.plan = plan or xy_plan()
        self.arena = arena
        self.owner, self.pool, self.metrics, self.service = Owner(), Pool(), Metrics(), NoService()
        self.statistics = ModelStatistics()
        settings = settings or WorkerSettings(stop_timeout_s=5)
        self.host = WorkerHost(asyncio.get_running_loop(), self.pool, settings, self.metrics)
        self.host.service = self.service
        nowhere = Path("/nowhere")
        self.context = ProcessContext(
            self.plan,
            WorkerProgram(nowhere, True, {}, nowhere, nowhere, nowhere),
            limits or WorkerLimits(),
            self.host,
            self.statistics,
            BatchEncoder(self.plan),
            ResponseDecoder(self.plan, OutputChecker(self.plan)),
            self.owner,
        )
        self.instance = ProcessInstance(self.plan.instances[0], self.context)
        # Tests say when the next worker is there.
        self.instance._supervisor._start = self._start
        self.zero_counts: list[int] = []
        self.instance.on_open_zero = lambda: self.zero_counts.append(self.instance.open_count)
        self.done: list[int] = []
        self.process = FakeProcess(arena)
        self.instance.adopt(self.started(self.process))

    def started(self, process: FakeProcess) -> StartedWorker:
        queries = WorkerQueries(self.host, WorkerIdentity("m", "1", "m_0"))
        queries.attach(process)
        return StartedWorker(process, queries, False)

    def revive(self) -> FakeProcess:
        """Let a new worker be there."""
        self.process = FakeProcess(self.arena)
        self.instance._supervisor.adopt(self.started(self.process))
        return self.process

    async def _start(self, delay_s: float) -> None:
        """Start nothing."""

    def fail_start(self, error: Exception) -> None:
        """Let the next start fail."""
        self.instance._on_start_failed(error)

    def probe(self, value: float = 1, size: int = 2, rows: int = 1) -> Probe:
        probe = Probe({"X": np.full((rows, size), value, np.float32)}, rows)
        probe.request.outputs = ("Y",)
        return probe

    def submit(self, *probes: Probe, mark: int = 0) -> None:
        """Submit a batch of the requests of `probes`; `done` gets `mark`."""
        self.instance.submit(batch(*probes), lambda _: self.done.append(mark))

    def submit_run(self, *batches: list[Probe], mark: int = 0) -> None:
        self.instance.submit_run([batch(*probes) for probes in batches], lambda _: self.done.append(mark))


def batch(*probes: Probe) -> Batch:
    requests = [probe.request for probe in probes]
    return Batch(requests, sum(request.batch_size for request in requests))


def small_arena(size: int = MEBIBYTE) -> ArenaLimits:
    """Return limits of an arena of `size` bytes in all."""
    return ArenaLimits(first_bytes=size, growth_bytes=size, limit_bytes=size)

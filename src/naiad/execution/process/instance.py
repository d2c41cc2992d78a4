"""The executor whose copy of the model lives in a worker process.

Owns the batches on their way through the worker, and what becomes of them when it dies: a death fails exactly the requests that
the worker had begun. The process is `supervisor`'s part, requests that are answered one by one `open_requests`'. Loop thread
only.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial

import orjson

from naiad.config.plan import InstancePlan
from naiad.errors import InferenceServerError, invalid_argument, unavailable
from naiad.execution.process.calls import NestedCalls
from naiad.execution.process.codec.decode import backend_error, failure
from naiad.execution.process.codec.encode import BlockLayout
from naiad.execution.process.codec.outputs import WorkerOutputs
from naiad.execution.process.context import ProcessContext
from naiad.execution.process.life.death import BrokenWorkerError, Death
from naiad.execution.process.life.process import WorkerProcess
from naiad.execution.process.life.start import StartedWorker
from naiad.execution.process.life.supervisor import Supervisor, SupervisorHooks
from naiad.execution.process.open_requests import OpenRequests
from naiad.execution.process.watchdog import Watchdog
from naiad.execution.process.work import OnDone, Work
from naiad.execution.threads import Completion
from naiad.memory.arena import ArenaFull
from naiad.request.batch import Batch
from naiad.request.request import InferRequest
from naiad.worker.frames import FLAG_FAILED, FLAG_RELEASED, Frame, Kind, pack_execute

# Copying a megabyte takes some 0.2 ms of the loop; more is copied by a thread.
_LARGE_BATCH_BYTES = 1 << 20
# Batches this short are handed over several at a time: a hand-over costs as much.
_SHORT_EXECUTION_NS = 200_000
_MAX_RUN_LENGTH = 16
# With so few of them left in the worker, it gets more.
_LOW_WATER = 8

_now_ns = time.monotonic_ns


class ProcessInstance:
    """See `Instance`. `is_sole` is the model's to set: no other one takes from its queue, in which no batches form."""

    def __init__(self, plan: InstancePlan, context: ProcessContext) -> None:
        self.name = plan.name
        self.on_open_zero: Callable[[], None] = lambda: None
        self._context = context
        self._model = context.plan.name
        self._owner = context.owner
        self._process: WorkerProcess | None = None
        self._outputs: WorkerOutputs | None = None
        self._calls: NestedCalls | None = None
        self._waiting: deque[Work] = deque()
        self._running: deque[Work] = deque()
        self._copying: Work | None = None
        self._is_pumping = False
        self._next_id = 1
        self._not_given_back = 0
        self._execution_ns = 0
        # Instances that share a queue would take from it unevenly, and batches are better when they form late.
        self.is_sole = False
        self._readiness: asyncio.Task[bool] | None = None
        self._open = OpenRequests(context.decoder, context.statistics, self, self._on_request_end, self._on_cancel)
        self._watchdog = Watchdog(context.host.loop, context.limits, self._on_hang)
        self._supervisor = Supervisor(
            plan,
            context,
            SupervisorHooks(self._on_frame, self._on_death, self._on_started, self._on_start_failed, self._pump, self._is_idle),
        )

    def adopt(self, started: StartedWorker) -> None:
        """Take the worker that was started when the model was loaded."""
        self._context.host.waits.add(self._model, self)
        self._supervisor.adopt(started)

    # See `Instance`.

    @property
    def run_length(self) -> int:
        """See `Instance.run_length`."""
        return _MAX_RUN_LENGTH if 0 < self._execution_ns < _SHORT_EXECUTION_NS else 1

    @property
    def open_count(self) -> int:
        """See `Instance.open_count`."""
        scheduled = {number for work in self._running if not work.is_given_back for number in work.ids}
        unsent = sum(work.unended_count for work in self._unsent() if work.is_given_back)
        return self._open.unended_count(scheduled) + unsent

    def submit(self, batch: Batch, on_done: OnDone) -> None:
        """See `Instance.submit`."""
        self._waiting.append(Work(batch.requests, on_done, is_positional=batch.is_positional, is_counted=batch.is_counted))
        self._pump()

    def submit_run(self, batches: list[Batch], on_done: OnDone) -> None:
        """See `Instance.submit_run`."""
        self._waiting.extend([Work(batch.requests, None) for batch in batches])
        self._waiting[-1].on_done = on_done
        self._pump()

    @property
    def resident_bytes(self) -> int:
        """The worker's memory in bytes, 0 while there is none."""
        return self._supervisor.resident_bytes()

    @property
    def is_busy(self) -> bool:
        """See `WaitingInstance`."""
        return bool(self._running)

    @property
    def awaited_models(self) -> Collection[str]:
        """See `WaitingInstance`."""
        return () if self._calls is None or not self._running else self._calls.awaited_models()

    async def check_ready(self) -> bool:
        """Ask the model's `is_ready`, once at a time; without an answer within five seconds it isn't."""
        worker = self._supervisor.worker
        if worker is None:
            return False
        if not worker.has_is_ready:
            return True
        if self._readiness is None or self._readiness.done():
            self._readiness = self._context.host.loop.create_task(worker.process.ask_ready())
        return await asyncio.shield(self._readiness)

    async def close(self, *, is_hurried: bool = False) -> None:
        """Let the model finalize and end the worker, or kill it at once. What it still held fails."""
        self._watchdog.close()
        self._context.host.waits.remove(self._model, self)
        await self._supervisor.close(0 if is_hurried else self._context.host.settings.stop_timeout_s)
        self._process = None
        if self._calls is not None:
            self._calls.cancel_all()
        error = unavailable(f"model '{self._model}' was unloaded")
        self._lose(error, self._next_id, may_retry=False)
        self._fail_waiting(error)

    def send_later(self, frame: bytes) -> None:
        """See `FrameSender`."""
        if self._process is not None:
            self._process.send_later(frame)

    # To the worker.

    def _pump(self) -> None:
        """Send what waits, as far as the worker is there and has room. What is submitted meanwhile goes after it."""
        process = self._process
        if process is None or self._is_pumping:
            return
        self._is_pumping = True
        try:
            frames = self._encode_waiting(process)
        finally:
            self._is_pumping = False
        if frames:
            self._send(process, frames)
            if self._not_given_back:
                self._take_more()

    def _encode_waiting(self, process: WorkerProcess) -> list[bytes]:
        """Return the frames of the batches that are running from now on."""
        waiting = self._waiting
        frames: list[bytes] = []
        while waiting and process.takes_work and self._copying is None and not self._must_wait(waiting[0]):
            work = waiting[0]
            if not self._prepare(work):
                continue
            try:
                frame = self._encode(process, work)
            except ArenaFull as full:
                if self._running and not full.is_hopeless:
                    break  # Memory comes free with what runs.
                if self._is_idle() and not full.is_hopeless:
                    self._supervisor.replace(f"its model keeps the inputs of requests that it has answered: {full}")
                    break
                self._refuse(work, unavailable(f"the inputs of this batch of model '{self._model}' don't fit: {full}"))
                continue
            except OSError as error:
                text = f"the system gives no memory for the inputs of this batch of model '{self._model}': {error.strerror}"
                self._refuse(work, unavailable(text))
                continue
            except orjson.JSONEncodeError as error:
                self._refuse(work, invalid_argument(f"this batch of model '{self._model}' can't be passed on: {error}"))
                continue
            waiting.popleft()
            if frame is not None:
                frames.append(frame)
        return frames

    def _send(self, process: WorkerProcess, frames: list[bytes]) -> None:
        """Send the frames of the last batches in `_running`; those that can't have arrived wait for the next worker."""
        assert self._outputs is not None
        process.send(self._outputs.release_frame(), *frames)
        if process.takes_work:
            return
        for _ in frames:
            work = self._running.pop()
            for number in work.ids:
                self._open.pop(number)
            self._not_given_back -= not work.is_given_back
            self._waiting.appendleft(work)
        if not self._running:
            self._watchdog.stop()

    def _must_wait(self, work: Work) -> bool:
        """Return whether `work` isn't to be sent yet: a retry runs alone, and a worker that is to be replaced gets no more.

        Requests whose `execute` has returned may be open for ever: while there are any, nothing waits for that.
        """
        if self._running and (work.is_retry or self._running[0].is_retry):
            return True
        return self._supervisor.is_due and len(self._open) <= sum(len(work.requests) for work in self._running)

    def _take_more(self) -> None:
        """Ask for more while short batches are still running, so that neither side waits for the other."""
        if not self.is_sole or len(self._running) > _LOW_WATER or not 0 < self._execution_ns < _SHORT_EXECUTION_NS:
            return
        self._not_given_back = 0
        given_back = []
        for work in self._running:
            work.is_given_back = True
            if work.on_done is not None:
                given_back.append(work.on_done)
                work.on_done = None
        for on_done in given_back:
            on_done(self)

    def _prepare(self, work: Work) -> bool:
        """Leave out requests that have ended while they waited; return whether any is left."""
        if work.drop_ended():
            return True
        self._waiting.popleft()
        self._finish(work)
        return False

    def _encode(self, process: WorkerProcess, work: Work) -> bytes | None:
        """Return the EXECUTE of a batch that is now running, or None when a thread copies its tensors first."""
        work.started_ns = _now_ns()
        layout = BlockLayout()
        tail = self._context.encoder.encode(work.requests, layout)
        if layout.size:
            work.block = process.arena.allocate(layout.size)
            view = process.arena.view(work.block)
            if layout.size > _LARGE_BATCH_BYTES:
                self._copying = work
                self._context.host.pool.submit(partial(self._copy, process, work, layout, view, tail))
                return None
            layout.copy_to(view)
        return self._started(work, tail)

    def _copy(self, process: WorkerProcess, work: Work, layout: BlockLayout, view: memoryview, tail: bytes) -> Completion:
        layout.copy_to(view)

        def send() -> None:
            self._copying = None
            if self._process is process:
                self._send(process, [self._started(work, tail)])
            else:
                self._waiting.appendleft(work)  # The worker has died meanwhile.
                self._prepare(work)
            self._pump()

        return send

    def _started(self, work: Work, tail: bytes) -> bytes:
        """Return the frame that starts a batch, with its requests open from now on."""
        work.first_id = self._next_id
        self._next_id += len(work.requests)
        work.gather_ns = _now_ns() - work.started_ns
        for number, request in enumerate(work.requests, work.first_id):
            self._open.add(number, request, work.is_retry)
        if self._watchdog.has_limit and not self._running:
            self._watchdog.start(work.requests)
        self._running.append(work)
        self._not_given_back += not work.is_given_back
        return pack_execute(work.first_id, tail, work.block)

    def _refuse(self, work: Work, error: InferenceServerError) -> None:
        self._waiting.popleft()
        work.fail(error)
        self._finish(work)

    # From the worker.

    def _on_frame(self, frame: Frame) -> None:
        kind = frame.kind
        if kind == Kind.RESULT:
            self._take_result(frame)
        elif kind == Kind.RESPONSE:
            self._take_response(frame)
        elif kind == Kind.RETURNED:
            self._take_returned(frame)
        elif kind == Kind.RESCHEDULE:
            self._open.reschedule(frame.id)
        elif self._calls is None or not self._calls.take(frame):
            worker = self._supervisor.worker
            if worker is not None:
                worker.queries.take(frame)

    def _take_result(self, frame: Frame) -> None:
        work = self._end_running(frame)
        try:
            self._answer(work, frame)
        except (BrokenWorkerError, ValueError):
            self._running.appendleft(work)  # It ends with the worker.
            raise
        self._supervisor.prove()
        self._finish(work)

    def _answer(self, work: Work, frame: Frame) -> None:
        """Pass the responses of a batch on."""
        assert self._outputs is not None
        data, lease = self._outputs.borrow(frame)
        decoder, began_ns, succeeded = self._context.decoder, _now_ns(), 0
        responses = decoder.read_batch(frame.tail)
        if len(responses) != len(work.requests):
            raise BrokenWorkerError(f"a batch of {len(work.requests)} requests has {len(responses)} responses")
        for number, known in enumerate(responses, work.first_id):
            if known.is_none:
                continue
            request = self._open.get(number)
            if request is None:
                continue
            # An ended one's too: what isn't well is a fault of the worker, whoever sees it.
            response = decoder.response(known, request, data)
            self._open.pop(number)
            if isinstance(response, InferenceServerError):
                request.responder.fail(response)
            else:
                response.timing = (work.started_ns - request.enqueued_ns, work.gather_ns, frame.value, _now_ns() - began_ns)
                succeeded += request.responder.send(response)
            del response
        # What the sockets have taken at once is free at once.
        del data
        self._outputs.settle(frame, lease)
        work.record(self._context.statistics, succeeded, frame.value, _now_ns() - began_ns)

    def _take_returned(self, frame: Frame) -> None:
        error = failure(frame.tail) if frame.flags & FLAG_FAILED else None
        work = self._end_running(frame)
        if error is not None:
            for number in work.ids:
                request = self._open.pop(number)
                if request is not None:
                    request.responder.fail(error)
            work.record(self._context.statistics, 0, frame.value, 0)
        else:
            self._supervisor.prove()
            work.record(self._context.statistics, len(work.requests), frame.value, 0)
        self._finish(work)

    def _take_response(self, frame: Frame) -> None:
        assert self._outputs is not None
        data, lease = self._outputs.borrow(frame)
        self._open.take_response(frame, data)
        del data
        self._outputs.settle(frame, lease)

    def _end_running(self, frame: Frame) -> Work:
        """Return the batch that `execute` has returned of; the next one is running from now on."""
        if not self._running or self._running[0].first_id != frame.id:
            raise BrokenWorkerError(f"batch {frame.id} has ended, which isn't the one that ran")
        work = self._running[0]
        if frame.flags & FLAG_RELEASED and self._process is not None:
            self._process.arena.release(work.block.segment, work.block.offset)
        self._running.popleft()
        self._not_given_back -= not work.is_given_back
        if self._watchdog.has_limit:
            self._watch_next()
        self._execution_ns = (self._execution_ns * 3 + frame.value) // 4 or 1
        return work

    def _watch_next(self) -> None:
        if self._running:
            self._watchdog.start(self._running[0].requests)
        else:
            self._watchdog.stop()

    def _finish(self, work: Work) -> None:
        """Say that a batch is over, when it is the last of its run."""
        on_done, work.on_done = work.on_done, None
        if on_done is not None:
            on_done(self)
        elif self._not_given_back:
            self._take_more()
        if self._waiting:
            self._pump()
        self._on_request_end()

    def _on_request_end(self) -> None:
        if self._calls:
            self._context.host.loop.call_soon(self._calls.caller_cancelled)
        if self._supervisor.is_due:
            self._supervisor.replace_due()
            self._pump()
        if not (self._running or self._waiting or self._copying):
            self.on_open_zero()

    def _on_cancel(self) -> None:
        """A request is being cancelled: it has ended when the loop's turn has."""
        self._context.host.loop.call_soon(self._on_request_end)

    def _unsent(self) -> list[Work]:
        """Return the batches that the worker hasn't got."""
        return [*self._waiting] if self._copying is None else [self._copying, *self._waiting]

    # Death and return.

    def _on_started(self, started: StartedWorker) -> None:
        self._process, host = started.process, self._context.host
        self._outputs = WorkerOutputs(self._process, host.loop)
        self._calls = NestedCalls(host, self._process, self._outputs, self._callers)
        self._owner.on_up(self)
        self._pump()

    def _on_death(self, death: Death, is_lasting: bool) -> None:
        process, self._process = self._process, None
        self._watchdog.stop()
        if self._calls is not None:
            self._calls.cancel_all()
        self._owner.on_down(self, death.text, is_lasting=is_lasting)
        error = backend_error(unavailable(death.text))
        self._lose(error, process.begun_id if process else 0, may_retry=self._context.limits.retries_on_death)
        if is_lasting:
            self._fail_waiting(error)

    def _lose(self, error: InferenceServerError, begun_id: int, *, may_retry: bool) -> None:
        """The worker is gone: fail what it had begun, keep what it hadn't, and give the runs back to the scheduler."""
        running, self._running = list(self._running), deque()
        self._not_given_back = 0
        done = [work.on_done for work in (*running, *self._unsent()) if work.on_done is not None]
        for work in (*running, *self._unsent()):
            work.on_done = None
            work.is_given_back = True
        rest = [Work(self._reclaim(work), None, True, work.is_retry) for work in running if work.first_id > begun_id]
        again = self._retried_work(error) if may_retry else []
        self._waiting.extendleft(reversed(again + rest))
        self._open.fail_all(error)
        for on_done in done:
            on_done(self)
        self._on_request_end()

    def _retried_work(self, error: InferenceServerError) -> list[Work]:
        """Return the requests that the worker had begun and not responded to, each alone. One that had its retry has ended two
        workers: it is refused for good.
        """
        again = []
        text = f"the request is refused, since a worker ended each of the two times that it ran: {error.message}"
        for request, is_retry in self._open.take_unanswered():
            if not is_retry:
                again.append(Work([request], None, True, True))
            elif request.responder.fail(backend_error(unavailable(text))):
                self._owner.poison_count += 1
        return again

    def _reclaim(self, work: Work) -> list[InferRequest]:
        """Return the requests of a batch that the worker had not begun."""
        return [request for number in work.ids if (request := self._open.pop(number)) is not None]

    def _on_start_failed(self, error: InferenceServerError) -> None:
        """Nothing may wait for a worker that doesn't come."""
        self._owner.on_down(self, error.message, is_lasting=True)
        self._fail_waiting(backend_error(unavailable(error.message)))

    def _fail_waiting(self, error: InferenceServerError) -> None:
        """End what no worker has got; what a thread still copies is left out when it is through."""
        unsent = self._unsent()
        self._waiting.clear()
        for work in unsent:
            work.fail(error)
        self._on_request_end()

    def _on_hang(self, limit_s: float) -> None:
        if self._process is not None:
            self._process.kill("hang", f"execute didn't return within its limit of {limit_s:g} seconds")

    def _is_idle(self) -> bool:
        return not (self._running or len(self._open) or self._copying)

    def _callers(self, named: int) -> list[InferRequest]:
        """Return the request with id `named` when the model named it, otherwise those that are running."""
        request = self._open.get(named)
        if request is not None:
            return [request]
        return list(self._running[0].requests) if self._running else []

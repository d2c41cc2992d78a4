"""The order of a worker's work: import, complete, start, batches, end. One model, one thread; an async model's loop is on it.

Owns which code of the model runs when, and what becomes of its exceptions.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

from naiad.worker import faults
from naiad.worker.api.model_config import ModelConfig
from naiad.worker.batch import Batch, ContractError
from naiad.worker.batches import LayoutReader, ResultTails, as_json
from naiad.worker.frames import Frame, Kind, pack
from naiad.worker.messages import LoadMessage
from naiad.worker.program import import_model
from naiad.worker.runtime import Runtime


class ModelLoop:
    """See the module."""

    def __init__(self, runtime: Runtime, importer: Callable[[LoadMessage], type[Any]] = import_model) -> None:
        self._runtime = runtime
        self._import = importer
        self._layouts = LayoutReader()
        self._tails = ResultTails()
        self._class: type[Any] | None = None
        self.model: Any = None
        self.name = self._instance = ""
        self._is_async = False
        self._questions: dict[int, Callable[[dict[str, Any]], Any]] = {
            Kind.LOAD: self._load,
            Kind.COMPLETE_CONFIG: self._complete_config,
            Kind.INITIALIZE: self._initialize,
        }

    def run(self) -> None:
        """Work until the server says FINALIZE."""
        while not self._is_async:
            frame = self._runtime.next_work()
            if frame.kind == Kind.EXECUTE:
                self._execute(frame)
            elif frame.kind == Kind.FINALIZE:
                self._finalize(frame)
                return
            else:
                self._answer(frame)
        # The loop has ended when `finalize` runs, which may run one of its own.
        self._finalize(asyncio.run(_AsyncLoop(self, self._runtime).run()))

    # Questions.

    def _answer(self, frame: Frame) -> None:
        """Answer a question of the server's; whatever the model raises is the answer."""
        try:
            if frame.kind == Kind.CHECK_READY:
                answer: Any = {"is_ready": self._is_ready()}
            else:
                answer = self._questions[frame.kind](json.loads(frame.tail))
            # Here, since what a model makes of its configuration may not be JSON.
            tail = as_json(answer)
        except BaseException as error:
            self.say_failed(frame, error)
        else:
            self._runtime.channel.send(pack(Kind.DONE, frame.id, tail))

    def say_failed(self, frame: Frame, error: BaseException) -> None:
        """Answer a question with what the model raised."""
        self._runtime.say(Kind.FAILED, frame.id, {"message": faults.short(error), "traceback": faults.whole(error)})

    def _load(self, message: Any) -> dict[str, Any]:
        self._runtime.version_directory = message["version_directory"]
        self._class = self._import(message)
        self.name = message["name"]
        return {"has_auto_complete": hasattr(self._class, "auto_complete_config")}

    def _complete_config(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._class is not None
        if not hasattr(self._class, "auto_complete_config"):
            return {"config": message["config"]}
        completed = self._class.auto_complete_config(ModelConfig(json.dumps(message["config"])))
        if not isinstance(completed, ModelConfig):
            raise TypeError(
                f"auto_complete_config must return the ModelConfig that it got, it returned a {type(completed).__name__}"
            )
        return {"config": completed.as_dict()}

    def _initialize(self, message: Any) -> dict[str, Any]:
        assert self._class is not None
        self._runtime.begin(self.name, message)
        self._instance = message["args"]["model_instance_name"]
        model = self._class()
        if hasattr(model, "initialize"):
            model.initialize(message["args"])
        self.model = model
        self._runtime.can_call = True
        self._is_async = inspect.iscoroutinefunction(getattr(model, "execute", None))
        return {"has_is_ready": hasattr(model, "is_ready")}

    def _is_ready(self) -> bool:
        if not hasattr(self.model, "is_ready"):
            return True
        answer = self.model.is_ready()
        if inspect.isawaitable(answer):
            answer = asyncio.run(_awaited(answer))
        return bool(answer)

    def _finalize(self, frame: Frame) -> None:
        """Run the model's `finalize` and answer."""
        self._runtime.can_call = False
        try:
            if hasattr(self.model, "finalize"):
                self.model.finalize()
        except BaseException as error:
            self.say_failed(frame, error)
        else:
            self._runtime.say(Kind.DONE, frame.id, {})

    # Batches.

    def batch(self, frame: Frame) -> Batch:
        """Return the batch of an EXECUTE, which begins."""
        self._runtime.note_begun(frame)
        return Batch(frame, self._layouts.read(frame.tail), self._runtime, self.name, self._tails)

    def execute_method(self) -> Any:
        """Return the model's `execute`. Raises ContractError when it has none."""
        execute = getattr(self.model, "execute", None)
        if execute is None:
            raise ContractError(f"Python model {self.name} does not implement `execute` method.")
        return execute

    def text_of(self, error: BaseException) -> str:
        """Return what clients get to read of `error`; the log gets the whole of it."""
        if isinstance(error, ContractError):
            return str(error)
        self._runtime.log("ERROR", f"execute of '{self._instance}' raised:\n{faults.whole(error)}")
        return f"Failed to process the request(s) for model instance '{self._instance}', message: {faults.short(error)}"

    def _execute(self, frame: Frame) -> None:
        """Run a batch and send its result."""
        batch = self.batch(frame)
        began_ns = ended_ns = time.monotonic_ns()
        try:
            returned = self.execute_method()(list(batch.requests))
            if inspect.iscoroutine(returned):  # A decorator may hide that `execute` is a coroutine function.
                returned = asyncio.run(returned)
            ended_ns = time.monotonic_ns()
            batch.take(returned)
            del returned
        except BaseException as error:
            ended_ns = max(ended_ns, time.monotonic_ns())
            batch.take_error(self.text_of(error))
        # At once: the next batch may take long, or be this process's end.
        self._runtime.channel.send(batch.reply(ended_ns - began_ns))


class _AsyncLoop:
    """The same for a model whose `execute` is a coroutine function: its event loop waits for work."""

    def __init__(self, owner: ModelLoop, runtime: Runtime) -> None:
        self._owner = owner
        self._runtime = runtime
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Frame:
        """Work until the server says FINALIZE; return that frame."""
        loop = asyncio.get_running_loop()
        runtime = self._runtime

        def wake() -> None:
            loop.call_soon_threadsafe(self._wake.set)

        runtime.on_work = wake
        runtime.channel.read_on(loop)
        while True:
            while runtime.work:
                frame = runtime.work.popleft()
                if frame.kind == Kind.FINALIZE:
                    runtime.on_work = None
                    runtime.channel.leave(loop)
                    return frame
                self._start(loop, self._execute(frame) if frame.kind == Kind.EXECUTE else self._check_ready(frame))
            self._wake.clear()
            if not runtime.work:
                await self._work_or_trim()

    async def _work_or_trim(self) -> None:
        """Wait for work, or give memory back when none comes for a while."""
        try:
            await asyncio.wait_for(self._wake.wait(), self._runtime.trim_after_s())
        except asyncio.TimeoutError:
            self._runtime.trim()

    async def _execute(self, frame: Frame) -> None:
        if self._runtime.is_decoupled and not self._runtime.is_iterative:
            await self._execute_decoupled(frame)
            return
        # Batches may be sent ahead, but the server counts on their order, and on one that runs at a time.
        async with self._turn:
            batch = self._owner.batch(frame)
            began_ns = time.monotonic_ns()
            try:
                await self._run_model(batch)
            except BaseException as error:
                batch.take_error(self._owner.text_of(error))
            self._runtime.channel.send(batch.reply(time.monotonic_ns() - began_ns))

    async def _execute_decoupled(self, frame: Frame) -> None:
        """The next batch may come while this one still awaits: to the server it has returned at once."""
        batch = self._owner.batch(frame)
        self._runtime.channel.send(batch.reply(0))
        try:
            await self._run_model(batch)
        except BaseException as error:
            batch.fail_open(self._owner.text_of(error))

    async def _run_model(self, batch: Batch) -> None:
        batch.take(await self._owner.execute_method()(list(batch.requests)))

    async def _check_ready(self, frame: Frame) -> None:
        try:
            answer = self._owner.model.is_ready() if hasattr(self._owner.model, "is_ready") else True
            is_ready = bool(await answer if inspect.isawaitable(answer) else answer)
        except BaseException as error:
            self._owner.say_failed(frame, error)
        else:
            self._runtime.say(Kind.DONE, frame.id, {"is_ready": is_ready})

    def _start(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
        """A loop holds its tasks weakly."""
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._runtime.trim_after_s() is not None:
            # What it has grown the memory by is to be given back some day.
            self._wake.set()


async def _awaited(answer: Any) -> Any:
    return await answer

"""A server on a thread with an event loop of its own, inside a program.

Owns the thread, and the program's way to the loop. Changes nothing of the process: no signals, no logging, no collector.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from naiad.config.options import ServerOptions
from naiad.core.server import InferenceServer, LogControl
from naiad.errors import InferenceServerError, unavailable
from naiad.request.call import InferCall
from naiad.server import assembly
from naiad.server.assembly import ModelsToServe
from naiad.server.embedded.in_flight import InFlight, Receiver
from naiad.server.lifecycle import Lifecycle
from naiad.server.listening import Sockets, bind_all
from naiad.server.process import new_loop

T = TypeVar("T")

_NOT_RUNNING = "the server isn't running"


class BackgroundServer:
    """One run of a server; every method may be called on any thread."""

    def __init__(self, options: ServerOptions, models: ModelsToServe, logs: LogControl) -> None:
        self._options = options
        self._models = models
        self._logs = logs
        self._loop = new_loop()
        self._lock = threading.Lock()
        self._is_open = False
        self._in_flight: set[InFlight] = set()
        self._questions: set[asyncio.Task[None]] = set()
        self._stop_wanted = asyncio.Event()
        self._started: Future[assembly.Server] = Future()
        self._core: InferenceServer | None = None
        self._thread = threading.Thread(target=self._run, name="naiad-server", daemon=True)
        self.sockets = Sockets()

    def start(self) -> assembly.Server:
        """Bind the ports, start the thread and wait until the models are loaded.

        Raises InferenceServerError, with nothing left, for a port that can't be had and for a model that fails to load (unless
        `exit_on_error` is off).
        """
        try:
            self.sockets = bind_all(self._options)
        except InferenceServerError:
            self._loop.close()
            raise
        self._thread.start()
        try:
            return self._started.result()
        except BaseException:
            self.stop()
            raise

    def ask_to_stop(self) -> None:
        """Begin to stop, and don't wait for it; also in a signal handler, and when the server has stopped."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop_wanted.set)

    def join(self) -> None:
        """Wait until the server has stopped."""
        self._thread.join()

    def stop(self) -> None:
        """Let what is in flight end, then stop; returns when nothing of the server is left."""
        self.ask_to_stop()
        self.join()

    def begin(self, call: InferCall, receiver: Receiver, timeout_s: float | None) -> InFlight:
        """Send a call; every outcome goes to `receiver`. Raises UNAVAILABLE when the server doesn't run."""
        in_flight = InFlight(receiver, self._in_flight.discard)
        self.post(lambda: self._begin(in_flight, call, timeout_s))
        return in_flight

    def give_up(self, in_flight: InFlight, error: InferenceServerError) -> None:
        """End a call from the program's side. Does nothing when it, or the server, has ended."""
        self._post_if_open(lambda: in_flight.give_up(error))

    def ask(self, question: Callable[[InferenceServer], T]) -> T:
        """Return what `question` returns on the loop thread; blocks. Raises UNAVAILABLE when the server doesn't run."""
        future: Future[T] = Future()

        def answer() -> None:
            assert self._core is not None
            try:
                future.set_result(question(self._core))
            except Exception as error:
                future.set_exception(error)

        self.post(answer)
        return future.result()

    def ask_and_wait(self, question: Callable[[InferenceServer], Awaitable[T]]) -> T:
        """As `ask`, for a question that takes its time."""
        future: Future[T] = Future()

        async def answer() -> None:
            assert self._core is not None
            try:
                future.set_result(await question(self._core))
            except asyncio.CancelledError:
                future.set_exception(unavailable(_NOT_RUNNING))
            except Exception as error:
                future.set_exception(error)

        def begin() -> None:
            task = self._loop.create_task(answer())
            self._questions.add(task)
            task.add_done_callback(self._questions.discard)

        self.post(begin)
        return future.result()

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the loop thread. Raises UNAVAILABLE when the server doesn't run."""
        if not self._post_if_open(callback):
            raise unavailable(_NOT_RUNNING)

    def post_quietly(self, callback: Callable[[], None]) -> None:
        """As `post`, for what means nothing any more when the server doesn't run."""
        self._post_if_open(callback)

    def _post_if_open(self, callback: Callable[[], None]) -> bool:
        with self._lock:
            if self._is_open:
                self._loop.call_soon_threadsafe(callback)
            return self._is_open

    def _begin(self, in_flight: InFlight, call: InferCall, timeout_s: float | None) -> None:
        assert self._core is not None
        self._in_flight.add(in_flight)
        in_flight.begin(self._core, call, timeout_s)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                raise
        finally:
            self.sockets.close()
            self._loop.close()

    async def _serve(self) -> None:
        server = assembly.assemble(self._options, self._models, self.sockets, self._logs, self._loop)
        life = Lifecycle(server, self._options)
        self._core = server.core
        await life.listen()
        loading = self._loop.create_task(life.load())
        stopping = self._loop.create_task(self._stop_wanted.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            loading.result()
        failures = server.repository.failures()
        if not loading.done() or (failures and self._options.exit_on_error):
            # Nothing can stop a thread that loads.
            stopping.cancel()
            await asyncio.wait((loading, stopping))
            await life.close()
            self._started.set_exception(_start_error(failures))
            return
        server.core.mark_loaded()
        self._is_open = True
        self._started.set_result(server)
        await stopping
        await self._end(life, server)

    async def _end(self, life: Lifecycle, server: assembly.Server) -> None:
        is_all_answered = await life.drain()
        with self._lock:
            self._is_open = False
        # What was posted before runs first, and is refused by the server that drains.
        await asyncio.sleep(0)
        for task in self._questions:
            task.cancel()
        await asyncio.sleep(0)
        for in_flight in list(self._in_flight):
            in_flight.give_up(unavailable("the server is shutting down and its exit timeout has expired"))
        if is_all_answered:
            await life.close()
        else:
            await life.cut()


def _start_error(failures: list[tuple[str, str]]) -> InferenceServerError:
    if not failures:
        return unavailable("the server was stopped while its models were loading")
    return unavailable("; ".join(f"model '{name}' failed to load: {reason}" for name, reason in failures))

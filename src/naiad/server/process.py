"""A server process from its options to its exit code: start, signals, stop.

Owns the order of the start, and what is changed for the whole process (signal handlers, the GIL's switch interval, the
garbage collector, the allocator), which happens here and never at import.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path

from naiad.backends.table import BackendTable
from naiad.config.options import ServerOptions
from naiad.errors import InferenceServerError, invalid_argument
from naiad.frontends.tls import ServerTls
from naiad.observability.logs import LogSettings
from naiad.repository.layout import scan
from naiad.repository.remote.opening import open_repositories
from naiad.server import allocator, assembly, banner, descriptors
from naiad.server.assembly import ModelsToServe
from naiad.server.embedded.config import BACKEND
from naiad.server.functions.targets import FunctionInWorkerBackend, function_sources
from naiad.server.lifecycle import Lifecycle
from naiad.server.listening import Sockets, bind_all

# A thread waits this long for the GIL of a busy loop thread (5 ms by default); see docs/decisions.md for the measurement.
SWITCH_INTERVAL_SECONDS = 0.001

_SERVICES = {"http": "HTTPService", "grpc": "GRPCInferenceService", "metrics": "Metrics Service"}

_log = logging.getLogger("naiad.server")


def run(options: ServerOptions) -> int:
    """Serve until a signal ends it; return the exit code: 0 after a clean stop, 1 when the start or the drain failed."""
    logs = LogSettings.install(options)
    try:
        models = _models(options)
        sockets = bind_all(options)
    except InferenceServerError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    descriptors.raise_limit(assembly.max_connections(options))
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    allocator.keep_freed_memory()
    loop = new_loop()
    try:
        return loop.run_until_complete(_Process(options, models, sockets, logs, loop).run())
    finally:
        # A start that fails leaves no Unix socket's file behind either.
        sockets.close()
        loop.close()


def _models(options: ServerOptions) -> ModelsToServe:
    """Find what is to be served. Raises InferenceServerError when that is nothing, or no name of its own."""
    repositories = open_repositories(options, os.environ)
    found = scan(repositories.paths, assembly.SINGLE_FILE_SUFFIXES, assembly.naming_of(options))
    functions = function_sources(options.functions, Path.cwd())
    is_fixed = options.model_control_mode == "none"
    if is_fixed and not (found.sources or found.duplicates or functions):
        places = ", ".join(map(str, options.model_repository))
        raise invalid_argument(f"nothing to load: there is no model in {places}")
    return ModelsToServe(
        found.with_sources(functions),
        BackendTable(own={BACKEND: FunctionInWorkerBackend}, backend_directory=options.backend_directory),
        repositories,
    )


class _Process:
    """One run of a server on one loop."""

    def __init__(
        self,
        options: ServerOptions,
        models: ModelsToServe,
        sockets: Sockets,
        logs: LogSettings,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._options = options
        self._sockets = sockets
        self._loop = loop
        self._server = assembly.assemble(options, models, sockets, logs, loop)
        self._server.repository.on_closed = allocator.give_back_freed_memory
        self._life = Lifecycle(self._server, options)
        self._stop_wanted = asyncio.Event()
        self._interrupts = 0

    async def run(self) -> int:
        self._catch_signals()
        await self._life.listen()
        for name, bound in self._sockets.named().items():
            # Scripts that start Triton wait for these words.
            _log.info("Started %s at %s", _SERVICES[name], bound.address)
        print(self._sockets.line(), flush=True)
        loading = self._loop.create_task(self._life.load())
        stopping = self._loop.create_task(self._stop_wanted.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            loading.cancel()
            await asyncio.wait((loading,))
            return await self._stop(is_loaded=False)
        loading.result()
        if not self._is_start_good():
            stopping.cancel()
            await self._life.close()
            return 1
        self._announce_ready()
        await stopping
        return await self._stop(is_loaded=True)

    def _is_start_good(self) -> bool:
        failures = self._server.repository.failures()
        for name, reason in failures:
            print(f"error: model '{name}' failed to load: {reason}", file=sys.stderr)
        if failures and self._options.exit_on_error:
            print("error: exiting since a model failed to load, --exit-on-error=false serves the others", file=sys.stderr)
            return False
        return True

    def _announce_ready(self) -> None:
        self._server.core.mark_loaded()
        # What is alive now stays: the collector needn't look at it again.
        gc.collect()
        gc.freeze()
        for line in banner.lines(self._server, self._sockets):
            print(line)
        sys.stdout.flush()

    def _catch_signals(self) -> None:
        self._loop.add_signal_handler(signal.SIGTERM, self._stop_wanted.set)
        self._loop.add_signal_handler(signal.SIGINT, self._interrupt)
        if self._sockets.tls() or self._server.api_keys is not None:
            # Without anything to read again, SIGHUP ends the process as it always did.
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        """Read files again that are renewed while the server runs; one that can't be used changes nothing."""
        for tls in self._sockets.tls():
            _read_again(tls)
        if self._server.api_keys is not None:
            self._server.api_keys.reload()

    def _interrupt(self) -> None:
        """The first ^C stops as SIGTERM does, the second ends the process at once."""
        self._interrupts += 1
        if self._interrupts > 1:
            _exit_now(130)
        self._stop_wanted.set()

    async def _stop(self, is_loaded: bool) -> int:
        """Drain and close. While models are loading, the process ends without them: nothing can stop a thread that loads."""
        life = self._life
        if not await life.drain():
            _log.error("Exit timeout expired. Exiting immediately.")
            await life.cut()
            _exit_now(1)
        if not is_loaded:
            await life.close_listeners()
            _exit_now(0)
        await life.close()
        _log.info("stopped")
        return 0


def _read_again(tls: ServerTls) -> None:
    try:
        tls.reload()
    except InferenceServerError as error:
        _log.error("the files of TLS were not read again, the old ones stay in use: %s", error.message)
    else:
        _log.info("the certificate '%s' was read again", tls.certificate)


def _exit_now(code: int) -> None:
    """End the process without waiting for threads: an engine in the middle of a batch can't be stopped any other way."""
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    os._exit(code)


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop where there is one; the policy of the process stays as it is."""
    try:
        import uvloop  # noqa: PLC0415 — not available everywhere
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop

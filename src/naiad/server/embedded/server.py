"""`Server` and `serve`: Python functions, and models of repositories, served by the program that calls these.

Owns what a program says of its server, and both ways to run it: in the background, and blocking until it is interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, final

from naiad.backends.table import BackendTable
from naiad.config.options.keywords import options_from_keywords
from naiad.core.server import LogControl
from naiad.errors import invalid_argument, unavailable
from naiad.observability.logs import LogSettings
from naiad.repository.layout import ModelSource, ScanResult, scan
from naiad.repository.remote.opening import open_repositories
from naiad.server import assembly, banner, descriptors
from naiad.server.assembly import ModelsToServe
from naiad.server.embedded.application_log import ApplicationLog
from naiad.server.embedded.backend import function_backend
from naiad.server.embedded.background import BackgroundServer
from naiad.server.embedded.blocking import quick_threads, stop_signals
from naiad.server.embedded.calling import FunctionCaller
from naiad.server.embedded.config import BACKEND, model_config
from naiad.server.embedded.declaration import Batching, Declaration, ModelFunction, Tensor, declare, name_of
from naiad.server.embedded.models import Models

Function = Callable[..., Any] | ModelFunction


@final
class Server:
    """A server in this program. `bind` functions, then `run()` it, or use it as a context manager to have it in the background.

    `options` are the flags of `naiad serve` as keywords: `http_port=0`, `model_repository="models"`. `http=False` opens no
    socket at all: the models are reached through `models` only. Raises InferenceServerError for an option that isn't known or
    allowed.

    In the background nothing of the process is changed: log lines go to the logger `naiad`, `log_…` options are refused.
    """

    def __init__(self, http: bool = True, **options: Any) -> None:
        self._given = frozenset(options)
        self._options = options_from_keywords(options)
        if not http:
            self._options = replace(self._options, allow_http=False, allow_grpc=False, allow_metrics=False)
        self._sources: dict[str, ModelSource] = {}
        self._callers: dict[str, list[FunctionCaller]] = {}
        self._running: BackgroundServer | None = None

    def bind(
        self,
        name: str,
        function: Function | Sequence[Function],
        inputs: Sequence[Tensor] | None = None,
        outputs: Sequence[Tensor] | None = None,
        batching: Batching | bool = True,
        takes_requests: bool = False,
    ) -> None:
        """Serve `function` as the model `name`. It runs in threads of this process.

        It gets the inputs' arrays by name: as keyword arguments when its parameters are called so, else all in one dict. They
        are read-only, and what it returns it must not change afterwards. When the model batches, they hold the items of
        several requests, one after the other along the first dimension. It returns a dict of arrays by output name, or a
        tuple in the order of `outputs`, or the one array. With `takes_requests` it gets a list of requests, each with
        `inputs`, `parameters`, `outputs` and `id`, and returns a list with such a result for each. When it raises, each
        request of the batch is run once more, alone.

        One function runs one batch at a time. A list of functions runs as many at a time as it has members, which may be the
        same function. `inputs` and `outputs` may be left out for a function with `model_function`, which then says all.

        Raises InferenceServerError for a function that can't be served, a name that is taken, and while the server runs.
        """
        if self._running is not None:
            raise unavailable("functions are bound before the server runs")
        if name in self._sources:
            raise invalid_argument(f"there is a model '{name}' already")
        functions = list(function) if isinstance(function, Sequence) else [function]
        if not functions:
            raise invalid_argument(f"model '{name}' has no function")
        declaration = _declaration(functions[0], name, inputs, outputs, (batching, takes_requests))
        self._callers[name] = [FunctionCaller(_plain(item), declaration) for item in functions]
        config = model_config(name, declaration, len(functions))
        self._sources[name] = ModelSource(name, Path(), None, {1: Path()}, config=config)

    def start(self) -> None:
        """Start in the background and return when all models are loaded; what a `with` block does.

        Raises InferenceServerError, and nothing is left, when a port can't be had, a model can't be loaded, or there is none.
        """
        refused = sorted(name for name in self._given if name.startswith("log_"))
        if refused:
            raise invalid_argument(
                f"{', '.join(refused)}: a server in the background writes to this program's log; configure its logger 'naiad'"
            )
        self._start(ApplicationLog())

    def stop(self) -> None:
        """Refuse new requests, let what is in flight end, and stop; does nothing when the server doesn't run."""
        running = self._running
        if running is not None:
            running.stop()
            self._running = None

    def run(self) -> None:
        """Serve until SIGINT (^C), SIGTERM or `stop()` in another thread ends it; shows what `naiad serve` shows.

        A second ^C raises KeyboardInterrupt. Outside the main thread signals aren't looked at.
        """
        logs = LogSettings.install(self._options)
        try:
            with quick_threads():
                descriptors.raise_limit(assembly.max_connections(self._options))
                running, server = self._start(logs)
                lines = (running.sockets.line(), *banner.lines(server, running.sockets))
                sys.stdout.write("".join(f"{line}\n" for line in lines))
                sys.stdout.flush()
                with stop_signals(running.ask_to_stop):
                    running.join()
        finally:
            self._running = None
            logs.close()

    def __enter__(self) -> Server:
        """See `start`."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """See `stop`."""
        self.stop()

    @property
    def models(self) -> Models:
        """The models, to be called without a socket."""
        return Models(self._needed())

    @property
    def http_address(self) -> str:
        """Where HTTP is served, as host:port. Raises UNAVAILABLE when it isn't."""
        bound = self._needed().sockets.http
        if bound is None:
            raise unavailable("this server has no HTTP socket")
        return bound.address

    @property
    def grpc_address(self) -> str:
        """Where gRPC is served, as host:port. Raises UNAVAILABLE when it isn't."""
        bound = self._needed().sockets.grpc
        if bound is None:
            raise unavailable("this server has no gRPC socket")
        return bound.address

    @property
    def metrics_address(self) -> str:
        """Where /metrics is served, as host:port. Raises UNAVAILABLE when it isn't."""
        bound = self._needed().sockets.metrics
        if bound is None:
            raise unavailable("this server has no socket for metrics")
        return bound.address

    def _needed(self) -> BackgroundServer:
        if self._running is None:
            raise unavailable("the server isn't running")
        return self._running

    def _start(self, logs: LogControl) -> tuple[BackgroundServer, assembly.Server]:
        if self._running is not None:
            raise unavailable("the server runs already")
        backends = BackendTable(
            own={BACKEND: function_backend(self._callers)}, backend_directory=self._options.backend_directory
        )
        repositories = open_repositories(self._options, os.environ)
        models = ModelsToServe(self._found(repositories.paths), backends, repositories)
        running = BackgroundServer(self._options, models, logs)
        server = running.start()
        self._running = running
        return running, server

    def _found(self, paths: Sequence[Path]) -> ScanResult:
        found = scan(paths, assembly.SINGLE_FILE_SUFFIXES, assembly.naming_of(self._options))
        is_fixed = self._options.model_control_mode == "none"
        if is_fixed and not (self._sources or found.sources or found.duplicates):
            raise invalid_argument("nothing to serve: bind a function, or give a model_repository with a model in it")
        return found.with_sources(self._sources)


def serve(
    function: Function,
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
    batching: Batching | bool = True,
    name: str = "",
    **options: Any,
) -> None:
    """Serve one function until it is interrupted, as the model `name` (by default the function's name).

    See `Server.bind` for how it is called and `Server` for `options`.
    """
    server = Server(**options)
    server.bind(name or name_of(_plain(function)), function, inputs, outputs, batching)
    server.run()


def _declaration(
    function: Function,
    name: str,
    inputs: Sequence[Tensor] | None,
    outputs: Sequence[Tensor] | None,
    how: tuple[Batching | bool, bool],
) -> Declaration:
    if isinstance(function, ModelFunction):
        if inputs is not None or outputs is not None:
            raise invalid_argument(f"model '{name}': its function says its inputs and outputs already")
        return function.declaration
    if inputs is None or outputs is None:
        raise invalid_argument(f"model '{name}' needs inputs and outputs: give both, or decorate its function (model_function)")
    return declare(inputs, outputs, *how)


def _plain(function: Function) -> Callable[..., Any]:
    return function.function if isinstance(function, ModelFunction) else function

"""What a model asks of the server besides inference: model control, custom metrics.

Owns the answers to QUERY and METRIC frames of one worker, from its start on. Loop thread only.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import orjson

from naiad.errors import InferenceServerError, invalid_argument
from naiad.execution.process.codec.decode import parse
from naiad.execution.process.context import WorkerHost
from naiad.execution.process.life.death import BrokenWorkerError
from naiad.execution.process.life.process import WorkerIdentity, WorkerProcess
from naiad.worker.frames import Frame, Kind, pack

_log = logging.getLogger("naiad.model")


class WorkerQueries:
    """See the module. The worker's metrics go with it: `close`. `is_loading`: its model isn't ready yet."""

    def __init__(self, host: WorkerHost, identity: WorkerIdentity) -> None:
        self._host = host
        self._identity = identity
        self.is_loading = True
        self._process: WorkerProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._kinds: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "load_model": self._load_model,
            "unload_model": self._unload_model,
            "is_model_ready": self._is_model_ready,
            "metric_value": self._metric_value,
        }

    def attach(self, process: WorkerProcess) -> None:
        """Take the way back to the worker."""
        self._process = process

    def take(self, frame: Frame) -> None:
        """Take a QUERY or METRIC; other kinds have no meaning here. May raise BrokenWorkerError."""
        if frame.kind == Kind.QUERY:
            task = self._host.loop.create_task(self._answer(frame.id, parse(frame.tail)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif frame.kind == Kind.METRIC:
            self._change_metric(parse(frame.tail))

    def close(self) -> None:
        """Take the worker's metrics back: it is gone."""
        self._host.metrics.drop_owner(self)

    def _change_metric(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise BrokenWorkerError(f"a change of a metric can't be read: {message!r:.200}")
        try:
            self._host.metrics.apply(self, message)
        except InferenceServerError as error:
            _log.error("a custom metric of model '%s' is wrong: %s", self._identity.model, error.message)

    async def _answer(self, number: int, question: Any) -> None:
        try:
            ask = self._kinds.get(question["name"])
            if ask is None:
                raise invalid_argument(f"there is no question '{question['name']}'")
            answer: dict[str, Any] = {"value": await ask(question["arguments"])}
        except InferenceServerError as error:
            answer = {"error": [error.code.value, error.message]}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Without an answer the model would wait for ever.
            answer = {"error": ["INVALID_ARGUMENT", f"the question can't be read: {type(error).__name__}: {error}"]}
        if self._process is not None:
            self._process.send(pack(Kind.ANSWER, number, orjson.dumps(answer)))

    async def _load_model(self, arguments: dict[str, Any]) -> None:
        name = arguments["model_name"]
        parameters: dict[str, Any] = {}
        if arguments.get("config"):
            parameters["config"] = arguments["config"]
        for file, content in arguments.get("files", {}).items():
            parameters[file] = base64.b64decode(content)
        with self._waiting(name):
            await self._host.service.load_model(name, parameters)

    async def _unload_model(self, arguments: dict[str, Any]) -> None:
        name = arguments["model_name"]
        with self._waiting(name):
            await self._host.service.unload_model(name, bool(arguments.get("unload_dependents")))

    def _waiting(self, name: str) -> AbstractContextManager[None]:
        """Note that this model waits for a change of another, when others may wait for it: while it is being loaded."""
        return self._host.load_waits.waiting(self._identity.model, name) if self.is_loading else nullcontext()

    async def _is_model_ready(self, arguments: dict[str, Any]) -> bool:
        try:
            return await self._host.service.is_model_ready(arguments["model_name"], arguments.get("model_version", ""))
        except InferenceServerError:
            # Unknown and not ready are the same answer to this question.
            return False

    async def _metric_value(self, arguments: dict[str, Any]) -> float:
        return self._host.metrics.value(arguments["family"], arguments["labels"])

"""Model control: what is loaded at the start, and who may change that afterwards.

Owns the control modes, the protocol's rules and texts of load and unload, and that such calls outlive the clients that made
them. How a model is loaded is the manager's. Event loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from naiad.config import json_form
from naiad.config.options.repository_options import ALL_MODELS
from naiad.errors import InferenceServerError, invalid_argument, unavailable, unimplemented
from naiad.repository import layout
from naiad.repository.control import namesakes, upload_folders, uploads
from naiad.repository.control.looks import Looks
from naiad.repository.control.places import Places, with_state
from naiad.repository.control.poller import Poller, PollHooks
from naiad.repository.control.watcher import Watcher
from naiad.repository.layout import DUPLICATE, ModelSource, ScanResult, name_of
from naiad.repository.load_threads import LoadThreads
from naiad.repository.manager import RepositoryManager
from naiad.repository.states import UNLOADED, State
from naiad.repository.tree import TreeState
from naiad.request.service import IndexEntry

# Looking at folders, which a hanging file system may take its time for.
_LOOKING_THREADS = 4
_CLOSE_SECONDS = 2.0

_log = logging.getLogger("naiad.repository")


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """What the operator says of model control. `mode` is none, poll or explicit; `startup` the names of --load-model."""

    mode: str = "none"
    startup: tuple[str, ...] = ()
    poll_s: float = 15.0
    settle_s: float = 2.0
    allows_upload: bool = False


class ModelControl:
    """See the module."""

    def __init__(
        self, repository: RepositoryManager, places: Places, settings: ControlSettings, loop: asyncio.AbstractEventLoop
    ):
        repository.is_namespaced = places.naming.is_namespaced
        self._repository = repository
        self._places = places
        self._settings = settings
        self._loop = loop
        self._looking = LoadThreads(_LOOKING_THREADS, loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Future[None] = loop.create_future()
        self._looks = Looks(places)
        self._poller = Poller(PollHooks(self._look, self._load_polled, self._unload_polled), settings.poll_s, settings.settle_s)
        self._watcher = Watcher(places.paths_here, partial(self._on_loop, self._poller.wake))
        self._polling: asyncio.Task[None] | None = None
        self._startup: ScanResult = ScanResult({}, {})
        if settings.mode == "explicit":
            repository.ensembles.load_missing = lambda name: repository.load(name, partial(places.find, name))
        if settings.mode == "poll":
            repository.ensembles.load_again = self._load_again

    def announce(self, found: ScanResult) -> None:
        """Make known what is loaded at the start: of what was found all, or with explicit control what is named."""
        named = self._settings.startup
        if self._settings.mode != "explicit" or ALL_MODELS in named:
            self._startup = found
        else:
            wanted = {*named, *self._places.given}
            sources = {key: source for key, source in found.sources.items() if source.name in wanted}
            self._startup = ScanResult(sources, {key: at for key, at in found.duplicates.items() if name_of(key) in named})
        self._repository.announce(self._startup)
        there = {name_of(key) for key in (*self._startup.sources, *self._startup.duplicates)}
        for name in named:
            if name not in (ALL_MODELS, *there):
                reason = f"failed to load '{name}', failed to poll from model repository: there is no such model"
                _log.error("%s", reason)
                self._repository.mark_failed(name, reason)

    async def start(self) -> None:
        """Load what was announced; failures are in the states of the models. From then on the repositories are polled."""
        if self._settings.allows_upload:
            what = "removing what servers that were killed have left"
            self._begin(self._looking.run(what, upload_folders.remove_leftovers))
        is_polling = self._settings.mode == "poll" and self._settings.poll_s
        if is_polling:
            # Once the server is ready, it is known what was there: what goes from then on is missed.
            await self._poller.look_once(is_regular=False)
        budget = self._repository.budget
        loads = {key: partial(self._load_quietly, key) for key in self._startup.sources}
        if budget is None:
            await asyncio.gather(*(load() for load in loads.values()))
        else:
            # Ensembles take no memory, and wait for the models of their steps: not in the row of the others.
            last = await self._looking.run("looking for ensembles", partial(_ensembles, self._startup.sources))
            row = [(name_of(key), load) for key, load in loads.items() if key not in last]
            await asyncio.gather(budget.start(row), *(loads[key]() for key in last))
        if is_polling:
            self._polling = self._loop.create_task(self._poller.run())
            self._watcher.start()

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """See `InferenceService.load_model`."""
        self._check(name)
        find = self._finder(name, parameters)
        # What a client's own files are loaded as is in no repository.
        if self._places.naming.is_namespaced and not uploads.has_files(parameters):
            await self._see_through(self._load_namesakes(name, find))
        else:
            await self._see_through(self._repository.load(name, partial(find, name)))

    async def unload(self, name: str, is_unload_dependents: bool = False) -> None:
        """See `InferenceService.unload_model`. With dependents go the ensembles that need the model, and the models of its own
        steps that no other ensemble needs.
        """
        self._check(name)
        names = [name, *self._repository.ensembles.related(name)] if is_unload_dependents else [name]
        keys = [key for each in names for key in self._repository.keys_of(each) or [each]]
        await self._see_through(namesakes.change_all(map(self._repository.unload, keys)))

    async def index(self, is_ready_only: bool) -> list[IndexEntry]:
        """See `InferenceService.repository_index`: what is known, and the names of what else is in the repositories."""
        if is_ready_only or not self._places.paths:
            return self._repository.index(is_ready_only)
        counts = await self._looking.run("reading the model repositories", self._places.keys)
        # What is unloaded and in two places says the latter: it is why nothing loads it.
        lines = [(key, line) for key, line in self._repository.lines() if line.reason != UNLOADED or counts[key] < 2]
        for key in counts.keys() - {key for key, _ in lines}:
            state, reason = (State.UNAVAILABLE.value, DUPLICATE) if counts[key] > 1 else ("", "")
            lines.append((key, IndexEntry(name_of(key), "", state, reason)))
        return [line for _, line in sorted(lines, key=lambda found: (found[1].name, found[0]))]

    def stop(self) -> None:
        """Change nothing from now on: calls are refused, those that wait are answered, loads are cut short."""
        self._watcher.stop()
        if self._polling is not None:
            self._polling.cancel()
        if not self._stopping.done():
            self._stopping.set_result(None)
        self._repository.stop_loading()

    async def close(self) -> None:
        """Give every model back. Loads that were cut short have a moment; one that hangs is left to its thread."""
        self.stop()
        if self._tasks:
            _, hanging = await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
            for task in hanging:
                task.cancel()
        await self._repository.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
        self._looking.close()

    def _check(self, name: str) -> None:
        if self._settings.mode != "explicit":
            raise unavailable("explicit model load / unload is not allowed if polling is enabled")
        if self._stopping.done():
            raise unavailable("the server is shutting down")
        if not name.strip() or name in (".", "..") or "/" in name or "\0" in name:
            raise invalid_argument(f"model name '{name}' must not be empty, '.' or '..', nor have a '/' in it")
        if not layout.is_folder_name(name):
            raise invalid_argument(f"model name '{name}' must be UTF-8 of at most 255 bytes without control characters")

    async def _load_namesakes(self, name: str, find: Callable[[str], ModelSource]) -> None:
        keys = await self._looking.run(f"looking for model '{name}'", partial(self._places.keys_of, name))
        await namesakes.change_all(self._repository.load(key, partial(find, key)) for key in keys)

    def _finder(self, name: str, parameters: Mapping[str, Any]) -> Callable[[str], ModelSource]:
        """Return what finds the model that a client asks for, by its key; it blocks. Raises for what isn't allowed."""
        text = parameters.get("config")
        contents = {key: content for key, content in parameters.items() if key.startswith(uploads.FILE_PREFIX)}
        if not contents:
            return lambda key: self._places.find(key, None if text is None else _read_override(text))
        if not self._settings.allows_upload:
            raise unimplemented(
                f"load parameter '{next(iter(contents))}': files in load requests are disabled, as they run code; start the "
                "server with '--allow-model-upload=true' to enable them"
            )
        files = uploads.file_paths(contents)
        if text is None:
            raise invalid_argument(f"load of '{name}' with files must have the load parameter 'config', too")
        return lambda _key: uploads.write(name, files, _read_override(text), self._remove)

    def _remove(self, path: Path) -> None:
        self._begin(self._looking.run(f"removing {path}", partial(shutil.rmtree, path, ignore_errors=True)))

    async def _see_through(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for `work`, which goes on when whoever waits is gone. Raises what it raises; UNAVAILABLE at the server's end."""
        task = self._begin(work)
        await asyncio.wait((task, self._stopping), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise unavailable("the server is shutting down")
        task.result()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """A failure that nobody waits for any more is in the model's state; one that is no answer is a fault of ours."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, InferenceServerError):
            _log.error("model control failed", exc_info=error)

    # Polling.

    def _on_loop(self, call: Callable[[], None]) -> None:
        """Have the loop call something; called on another thread, maybe after the loop's end."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    async def _look(self, is_regular: bool) -> Mapping[str, Any]:
        return await self._looking.run("reading the model repositories", partial(self._looks.look, is_regular))

    async def _load_quietly(self, key: str) -> None:
        """Load a model; what fails is in its state and the log."""
        found = self._startup.sources[key]
        states: list[TreeState | None] = []

        def find() -> ModelSource:
            source = with_state(found)
            states.append(source.state)
            return source

        # A failure is in the model's state.
        with suppress(InferenceServerError):
            await self._repository.load(key, find)
        # Without one, looking at the files hangs: the poller begins anew with what it sees.
        if states and states[0] is not None:
            self._poller.tried[key] = states[0]

    def _load_polled(self, key: str) -> None:
        _log.info("model '%s' is new or has changed", key)
        self._begin(self._repository.load(key, partial(self._places.find, key)))

    def _load_again(self, key: str) -> None:
        _log.info("ensemble '%s' is loaded again, since a model of its steps has been loaded", key)
        self._begin(self._repository.load(key, partial(self._places.find, key)))

    def _unload_polled(self, key: str) -> None:
        _log.info("model '%s' is no longer in the repositories, or in two of them", key)
        self._begin(self._repository.unload(key))


def _ensembles(sources: Mapping[str, ModelSource]) -> list[str]:
    """Return the keys of the models whose config's text says that they are ensembles; what can't be read is none."""
    found = []
    for key, source in sources.items():
        with contextlib.suppress(OSError):
            if source.config_file is not None and b"ensemble_scheduling" in source.config_file.read_bytes():
                found.append(key)
    return found


def _read_override(text: str) -> Any:
    try:
        return json_form.from_json(text, "the value of 'config'")
    except InferenceServerError as error:
        raise invalid_argument(f"Invalid config override: {error.message}") from error

"""The models of a server and the state of each version: loading, lookup, index.

Owns the states. All of it lives on the event loop thread; only the loader's blocking work runs on loading threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum

from naiad.errors import InferenceServerError, internal, not_found, unavailable
from naiad.repository.layout import ModelSource, ScanResult
from naiad.repository.loader import Loader, PreparedModel
from naiad.repository.model import LoadedVersion, Model, Runtime
from naiad.request.service import IndexEntry

_log = logging.getLogger("naiad.repository")


class State(Enum):
    """The state of a model version, as the repository index names it."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(slots=True)
class _Version:
    state: State
    reason: str = ""
    model: Model | None = None

    @property
    def can_serve(self) -> bool:
        """Whether an inference would be taken."""
        return self.state is State.READY and self.model is not None and not self.model.unready_reason

    @property
    def why(self) -> str:
        """The reason of the state, or why a loaded model can't serve for a time."""
        return self.model.unready_reason if self.model is not None else self.reason


@dataclass(slots=True)
class _Entry:
    """One model name. Until its config is read it has no versions, only a state of its own."""

    state: State = State.LOADING
    reason: str = ""
    versions: dict[int, _Version] = field(default_factory=dict)


class RepositoryManager:
    """See the module. `on_change` is called after each change of what can be looked up; `on_ready` with each new model,
    `on_gone` with each that no longer serves.
    """

    def __init__(self, loader: Loader, runtime: Runtime, load_thread_count: int) -> None:
        self._loader = loader
        self._runtime = runtime
        self._threads = ThreadPoolExecutor(load_thread_count, thread_name_prefix="naiad-load")
        self._entries: dict[str, _Entry] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.on_ready: Callable[[Model], None] = lambda _model: None
        self.on_gone: Callable[[Model], None] = lambda _model: None

    def announce(self, found: ScanResult) -> None:
        """Make the models of a scan known before they are loaded, so that a look-up says LOADING and not unknown."""
        for name in found.sources:
            self._entries[name] = _Entry()
        for name, places in found.duplicates.items():
            where = ", ".join(map(str, places))
            _log.error("model '%s' is not unique across all model repositories, it is in %s", name, where)
            self._entries[name] = _Entry(State.UNAVAILABLE, "model appears in two or more repositories")

    async def load_all(self, found: ScanResult) -> None:
        """Load every announced model; a failure is kept in the model's state and the log."""
        await asyncio.gather(*(self._load(source) for source in found.sources.values()))

    def failures(self) -> list[tuple[str, str]]:
        """Return name and reason of every model of which something isn't ready and isn't on its way."""
        failed = []
        for name, entry in self._entries.items():
            reasons = [version.reason for version in entry.versions.values() if version.state is State.UNAVAILABLE]
            if entry.state is State.UNAVAILABLE:
                reasons.append(entry.reason)
            failed += [(name, reason) for reason in reasons]
        return failed

    def is_ready(self) -> bool:
        """Return whether every version of every known model is READY and can serve."""
        return all(
            entry.state is State.READY and all(version.can_serve for version in entry.versions.values())
            for entry in self._entries.values()
        )

    def is_serving(self, name: str) -> bool | None:
        """Return whether the greatest version that is loaded can serve; None for a model that isn't known."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        ready = [number for number, version in entry.versions.items() if version.state is State.READY]
        return bool(ready) and entry.versions[max(ready)].can_serve

    def models(self) -> Iterator[Model]:
        """Yield every ready model version, by name and number."""
        for _, entry in sorted(self._entries.items()):
            for _, version in sorted(entry.versions.items()):
                if version.model is not None and version.state is State.READY:
                    yield version.model

    def find(self, name: str, version: str) -> Model:
        """Return the model version for an inference; "" is the greatest ready one.

        Raises like `look_up`, and UNAVAILABLE for one that can't serve for a time.
        """
        model = self.look_up(name, version)
        if model.refusal:
            raise unavailable(f"model '{name}' version {model.plan.version} is not ready: {model.refusal}")
        return model

    def look_up(self, name: str, version: str) -> Model:
        """Return the loaded model version, also when it can't serve for a time; "" is the greatest that is loaded.

        Raises NOT_FOUND for what isn't known and UNAVAILABLE for what is known but not loaded (yet).
        """
        entry = self._entries.get(name)
        if entry is None:
            raise not_found(f"Request for unknown model: '{name}' is not found")
        if version:
            return _explicit(name, entry, int(version))
        ready = [number for number, known in entry.versions.items() if known.state is State.READY]
        if ready:
            model = entry.versions[max(ready)].model
            assert model is not None
            return model
        states = {known.state for known in entry.versions.values()} | {entry.state}
        if State.LOADING in states:
            raise unavailable(f"Request for model '{name}' that is still loading, try again later")
        raise not_found(f"Request for unknown model: '{name}' has no available versions")

    def ready_versions(self, name: str) -> tuple[str, ...]:
        """Return the ready versions of a known model, ascending."""
        return tuple(
            str(number) for number, version in sorted(self._entries[name].versions.items()) if version.state is State.READY
        )

    def index(self, is_ready_only: bool) -> list[IndexEntry]:
        """Return a line for each known version; of a model whose versions aren't known, one line without a version.

        A version that can't serve for a time stays READY, since it is loaded, and has the reason.
        """
        lines = []
        for name, entry in sorted(self._entries.items()):
            if not entry.versions:
                lines.append(IndexEntry(name, "", entry.state.value, entry.reason))
            lines += [
                IndexEntry(name, str(number), version.state.value, version.why)
                for number, version in sorted(entry.versions.items())
            ]
        return [line for line in lines if line.state == State.READY.value or not is_ready_only]

    async def close(self) -> None:
        """Drain every model and give it back."""
        await asyncio.gather(*(self._unload(model) for model in list(self.models())))
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def kill(self) -> None:
        """End every worker process at once, in place of `close`."""
        await asyncio.gather(*(model.kill() for model in self.models()))
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _unload(self, model: Model) -> None:
        await model.drain()
        entry = self._entries[model.plan.name].versions[model.plan.version]
        entry.state, entry.reason, entry.model = State.UNAVAILABLE, "unloaded", None
        self.on_change()
        self.on_gone(model)
        await asyncio.get_running_loop().run_in_executor(self._threads, model.close)
        _log.info("successfully unloaded '%s' version %d", model.plan.name, model.plan.version)

    async def _load(self, source: ModelSource) -> None:
        entry = self._entries[source.name]
        loop = asyncio.get_running_loop()
        try:
            prepared = await loop.run_in_executor(self._threads, self._loader.prepare, source)
        except Exception as error:
            entry.state, entry.reason = State.UNAVAILABLE, _reason(error)
            _log.error("failed to load '%s': %s", source.name, entry.reason)
            self.on_change()
            return
        entry.versions = {version: _Version(State.LOADING) for version in prepared.versions}
        await asyncio.gather(*(self._load_version(entry, prepared, version) for version in prepared.versions))
        entry.state = State.READY
        self.on_change()

    async def _load_version(self, entry: _Entry, prepared: PreparedModel, number: int) -> None:
        name, version = prepared.source.name, entry.versions[number]
        _log.info("loading: %s:%d", name, number)
        loop = asyncio.get_running_loop()
        try:
            loaded = await loop.run_in_executor(self._threads, self._loader.load, prepared, number)
            version.model = await self._put_to_work(loaded)
        except Exception as error:
            version.state, version.reason = State.UNAVAILABLE, _reason(error)
            _log.error("failed to load '%s' version %d: %s", name, number, version.reason)
            return
        version.state = State.READY
        version.model.on_readiness = self.on_change
        self.on_change()
        self.on_ready(version.model)
        _log.info("successfully loaded '%s'", name)

    async def _put_to_work(self, loaded: LoadedVersion) -> Model:
        """Make the model of what was loaded; when that fails, what was loaded is given back."""
        try:
            return Model(loaded, self._runtime)
        except Exception:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._loader.close, loaded)
            raise


def _explicit(name: str, entry: _Entry, number: int) -> Model:
    version = entry.versions.get(number)
    if version is None and entry.state is not State.LOADING:
        raise not_found(f"Request for unknown model: '{name}' version {number} is not found")
    if version is None or version.state is not State.READY:
        raise unavailable(f"Request for unknown model: '{name}' version {number} is not at ready state")
    if version.model is None:
        raise internal(f"model '{name}' version {number} is ready but has no model")
    return version.model


def _reason(error: Exception) -> str:
    if isinstance(error, InferenceServerError):
        return error.message
    # A fault of ours: the operator gets the type, the log the place.
    _log.error("loading failed", exc_info=error)
    return f"{type(error).__name__}: {error}"

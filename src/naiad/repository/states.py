"""The models that a server knows and the state of each version: lookup, index, readiness.

Owns what may be said of them. What changes them is the manager's. Event loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from naiad.errors import InferenceServerError, internal, invalid_argument, not_found, unavailable
from naiad.repository.layout import ModelSource, key_of, name_of
from naiad.repository.model import Model
from naiad.request.service import IndexEntry

UNLOADED = "unloaded"
"""Why a version that was unloaded isn't available: the protocol's word."""


class State(Enum):
    """The state of a model version, as the repository index names it."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(slots=True, eq=False)
class Version:
    """One version. `model` is there while it is READY, `reason` is why it isn't, or why its last reload failed."""

    state: State
    reason: str = ""
    model: Model | None = None

    @property
    def can_serve(self) -> bool:
        """Whether an inference would be taken."""
        return self.state is State.READY and self.model is not None and not self.model.unready_reason

    @property
    def is_in_order(self) -> bool:
        """Whether it serves, or is wanted to be away."""
        return self.can_serve or self.state is State.UNLOADING or self.reason == UNLOADED

    @property
    def why(self) -> str:
        """The reason of the state, why a loaded model can't serve for a time, or what else is to be said of it."""
        model = self.model
        return self.reason if model is None else model.unready_reason or self.reason or model.note


@dataclass(frozen=True, slots=True)
class Origin:
    """What the versions that serve were loaded from, all with success; `config` is the completed one."""

    source: ModelSource
    config: Any


@dataclass(slots=True, eq=False)
class Entry:
    """One model name. Until its config is read it has no versions, only a state of its own: READY from then on. `config` is
    the completed one of what is READY.
    """

    state: State = State.LOADING
    reason: str = ""
    versions: dict[int, Version] = field(default_factory=dict)
    origin: Origin | None = None
    config: Any = None

    def ready(self) -> list[int]:
        """Return the numbers of the versions that are loaded, ascending."""
        return sorted(number for number, version in self.versions.items() if version.state is State.READY)

    def serves(self, source: ModelSource) -> bool:
        """Return whether all that `source` asks for serves, by what its files look like; unknown looks are a change."""
        if self.origin is None or source.state is None or not self.is_in_order:
            return False
        old = self.origin.source
        return (
            (source.state, source.directory, source.file_name) == (old.state, old.directory, old.file_name)
            and source.config == old.config
            and source.upload is old.upload
        )

    def forget_failures(self) -> None:
        """Drop what a failed reload has left: versions that never served, and why."""
        for number, version in list(self.versions.items()):
            if version.state is State.READY:
                version.reason = ""
            elif version.state is not State.UNLOADING and version.reason != UNLOADED:
                del self.versions[number]

    def note_long(self, number: int | None, reason: str) -> None:
        """Say at what is LOADING that it takes long: at one version, with None at every one."""
        if not self.versions:
            self.reason = reason
        for known, version in self.versions.items():
            if number in (None, known) and version.state is State.LOADING:
                version.reason = reason

    def note_failed_reload(self, reason: str) -> None:
        """Say at the versions that go on serving why no others took their place."""
        for number in self.ready():
            self.versions[number].reason = f"the last reload failed, what was loaded before serves: {reason}"

    @property
    def is_claimed(self) -> bool:
        """Whether the name is this model's: not when its config can't be read, nor once it is unloaded."""
        if not self.versions:
            return self.state is not State.UNAVAILABLE
        return not all(version.state is State.UNLOADING or version.reason == UNLOADED for version in self.versions.values())

    @property
    def is_in_order(self) -> bool:
        """Whether every version serves or is wanted to be away. A reload that failed leaves that as it was."""
        versions = self.versions.values()
        if self.state is not State.READY:
            return False
        if self.origin is not None:
            return all(version.can_serve for version in versions if version.state is State.READY)
        return all(version.is_in_order for version in versions)


class ModelTable:
    """See the module. Models are known by their keys (`layout.key_of`), requests give names: with `is_namespaced` one name may
    be that of several models.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self.is_namespaced = False

    def keys_of(self, name: str) -> list[str]:
        """Return the keys of all known models called `name`."""
        if not self.is_namespaced:
            return [name] if name in self._entries else []
        return [key for key in self._entries if name_of(key) == name]

    def key_for(self, name: str, namespace: str = "") -> str:
        """Return the key of the model that `name` stands for: that of `namespace`, or else the only one that has the name.

        For a name that isn't known it is the name itself. Raises INVALID_ARGUMENT when several have it.
        """
        if not self.is_namespaced:
            return name
        known = self.keys_of(name)
        near = key_of(namespace, name)
        claimed = [key for key in known if self._entries[key].is_claimed]
        if namespace and near in claimed:
            return near
        if len(claimed) > 1:
            raise invalid_argument(
                f"There are {len(claimed)} identifiers of model '{name}' in global map, model namespace must be provided to "
                "resolve ambiguity. A request can't provide one: rename all but one of the models"
            )
        return (claimed or known or [name])[0]

    def _entry(self, name: str, namespace: str = "") -> Entry | None:
        """Return the model that `name` stands for, None for none. A key is no name. Raises what `key_for` raises."""
        key = self.key_for(name, namespace)
        return None if self.is_namespaced and name_of(key) != name else self._entries.get(key)

    def failures(self) -> list[tuple[str, str]]:
        """Return key and reason of every model of which something isn't ready and isn't on its way."""
        failed = []
        for name, entry in self._entries.items():
            reasons = [
                version.reason
                for version in entry.versions.values()
                if version.state is State.UNAVAILABLE and version.reason != UNLOADED
            ]
            if entry.state is State.UNAVAILABLE:
                reasons.append(entry.reason)
            failed += [(name, reason) for reason in reasons]
        return failed

    def is_loading(self, key: str) -> bool:
        """Return whether a model is on its way for the first time."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        return entry.state is State.LOADING or any(version.state is State.LOADING for version in entry.versions.values())

    def is_loaded(self, key: str) -> bool:
        """Return whether a version of a model is loaded."""
        return bool(self.loaded_versions(key))

    def loaded_versions(self, key: str) -> list[int]:
        """Return the numbers of a model's versions that are loaded, ascending; none of a model that isn't known."""
        entry = self._entries.get(key)
        return [] if entry is None else entry.ready()

    def configs(self) -> dict[str, Any]:
        """Return the completed config of every model of which a version is loaded, by key."""
        return {key: entry.config for key, entry in self._entries.items() if entry.config is not None and entry.ready()}

    def is_ready(self) -> bool:
        """Return whether every version of every known model is READY and can serve; unloaded ones need not."""
        return all(entry.is_in_order for entry in self._entries.values())

    def is_serving(self, name: str) -> bool | None:
        """Return whether the greatest version that is loaded can serve; None for a model that isn't known."""
        try:
            entry = self._entry(name)
        except InferenceServerError:
            return False
        if entry is None:
            return None
        ready = entry.ready()
        return bool(ready) and entry.versions[ready[-1]].can_serve

    def models(self) -> Iterator[Model]:
        """Yield every ready model version, by name and number."""
        for _, entry in sorted(self._entries.items()):
            for number in entry.ready():
                model = entry.versions[number].model
                if model is not None:
                    yield model

    def loaded(self, name: str, namespace: str = "") -> list[Model]:
        """Return the versions of a model that are loaded, ascending, also those that can't serve for a time; none for a name
        that isn't known, or that several models have. `namespace` is that of who asks.
        """
        try:
            entry = self._entry(name, namespace)
        except InferenceServerError:
            return []
        return [] if entry is None else [_loaded(name, entry, number) for number in entry.ready()]

    def find(self, name: str, version: str) -> Model:
        """Return the model version for an inference; "" is the greatest ready one.

        Raises like `look_up`, and UNAVAILABLE for one that can't serve for a time.
        """
        return _able(self.look_up(name, version))

    def find_from(self, namespace: str, name: str, version: str) -> Model:
        """Return what `find` does, for who has a namespace: see `look_up_from`."""
        return _able(self.look_up_from(namespace, name, version))

    def look_up(self, name: str, version: str) -> Model:
        """Return the loaded model version, also when it can't serve for a time; "" is the greatest that is loaded.

        Raises NOT_FOUND for what isn't known, UNAVAILABLE for what is known but not loaded (yet), and what `key_for` raises.
        """
        return self._version_of(self._entry(name), name, version)

    def look_up_from(self, namespace: str, name: str, version: str) -> Model:
        """Return what `look_up` does, for who has a namespace, which goes first; an ensemble's for the models of its steps."""
        return self._version_of(self._entries.get(self.key_for(name, namespace)), name, version)

    def _version_of(self, entry: Entry | None, name: str, version: str) -> Model:
        if entry is None:
            raise not_found(f"Request for unknown model: '{name}' is not found")
        if version:
            return _explicit(name, entry, int(version))
        ready = entry.ready()
        if ready:
            return _loaded(name, entry, ready[-1])
        states = {known.state for known in entry.versions.values()} | {entry.state}
        if State.LOADING in states:
            raise unavailable(f"Request for model '{name}' that is still loading, try again later")
        raise not_found(f"Request for unknown model: '{name}' has no available versions")

    def ready_versions(self, name: str) -> tuple[str, ...]:
        """Return the ready versions of a known model, ascending."""
        return tuple(map(str, self._entries[self.key_for(name)].ready()))

    def index(self, is_ready_only: bool) -> list[IndexEntry]:
        """Return a line for each known version; of a model whose versions aren't known, one line without a version.

        A version that can't serve for a time stays READY, since it is loaded, and has the reason.
        """
        return [line for _, line in self.lines() if line.state == State.READY.value or not is_ready_only]

    def lines(self) -> Iterator[tuple[str, IndexEntry]]:
        """Yield every line of the index with the key of its model."""
        for key, entry in sorted(self._entries.items()):
            name = name_of(key) if self.is_namespaced else key
            if not entry.versions:
                yield key, IndexEntry(name, "", entry.state.value, entry.reason)
            for number, version in sorted(entry.versions.items()):
                yield key, IndexEntry(name, str(number), version.state.value, version.why)


def _able(model: Model) -> Model:
    """Return a model that takes requests. Raises UNAVAILABLE for one that can't for a time."""
    if model.refusal:
        raise unavailable(f"model '{model.plan.name}' version {model.plan.version} is not ready: {model.refusal}")
    return model


def _explicit(name: str, entry: Entry, number: int) -> Model:
    version = entry.versions.get(number)
    if version is None and entry.state is not State.LOADING:
        raise not_found(f"Request for unknown model: '{name}' version {number} is not found")
    if version is None or version.state is not State.READY:
        raise unavailable(f"Request for unknown model: '{name}' version {number} is not at ready state")
    return _loaded(name, entry, number)


def _loaded(name: str, entry: Entry, number: int) -> Model:
    model = entry.versions[number].model
    if model is None:
        raise internal(f"model '{name}' version {number} is ready but has no model")
    return model

"""The traffic settings of all models: those of their configurations, and those that the API has put in their place.

Owns which settings hold and what the API shows of them. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from naiad.config.traffic import NO_TRAFFIC, TrafficSettings, read_traffic
from naiad.core.region_sink import RunOnThread
from naiad.core.route import Route
from naiad.core.traffic.policy import Split
from naiad.core.traffic.routes import Draw, ModelTraffic, SharedRoutes
from naiad.core.traffic.shadow import ShadowRequests
from naiad.errors import InferenceServerError, invalid_argument, not_found
from naiad.repository.manager import RepositoryManager
from naiad.repository.model import Model

RouteOf = Callable[[str, str], Route]
"""Returns the route of a model's version, "" for the latest. Raises what an inference would get."""


class TrafficControl:
    """See the module."""

    def __init__(self, repository: RepositoryManager, draw: Draw, run_on_thread: RunOnThread) -> None:
        self._repository = repository
        self._draw = draw
        self._run_on_thread = run_on_thread
        self._states: dict[str, ModelTraffic] = {}
        self._is_stopped = False

    def show(self, name: str) -> dict[str, Any]:
        """Return the settings that hold for a model, where they come from and how its ready versions share requests by them.

        Raises NOT_FOUND for a model that isn't known, INVALID_ARGUMENT for a name that several have, as the others here do.
        """
        self._check_known(name)
        settings, source = self._settings(name)
        ready = _ready(self._repository.loaded(name), settings)
        return {
            "model": name,
            "source": source,
            **(settings or NO_TRAFFIC).to_json(),
            "shares": {str(version): share for version, share in _shares(ready).items()},
        }

    def set(self, name: str, members: Mapping[str, Any]) -> None:
        """Let `members` (see `config.traffic`) hold for a model from now on, in place of what held before.

        Raises NOT_FOUND for a model that isn't known, INVALID_ARGUMENT with every mistake; nothing changes then.
        """
        self._check_known(name)
        try:
            settings = read_traffic(members)
        except InferenceServerError as error:
            raise invalid_argument(f"traffic of model '{name}': {error.message}") from error
        self._state(name).given = settings

    def reset(self, name: str) -> None:
        """Let a model's own configuration hold again. Raises NOT_FOUND for a model that isn't known."""
        self._check_known(name)
        state = self._states.get(name)
        if state is not None:
            state.given = None

    def route(self, name: str, route_of: RouteOf) -> Route | None:
        """Return the route of requests that name no version, None where the latest answers them and nothing is copied.

        Raises what the latest version says when none of the weighted ones is ready.
        """
        models, settings = self._repository.loaded(name), self._settings(name)[0]
        state = self._states.get(name)
        if not models or ((settings is None or settings.is_empty) and not (state and state.sequences)):
            return None
        settings = settings or NO_TRAFFIC
        weights = _ready(models, settings)
        routes = {model.plan.version: route_of(name, str(model.plan.version)) for model in models if not model.refusal}
        latest = models[-1].plan.version if weights else route_of(name, "").model.plan.version
        split = Split(weights) if weights else None
        shared = SharedRoutes(self._state(name), settings, routes, split, latest, self._draw)
        return Route(models[-1], shared)

    def stop(self) -> None:
        """Give up all copies of requests and make no more: nobody waits for them."""
        self._is_stopped = True
        for state in self._states.values():
            state.shadow.stop()

    def states(self) -> Iterator[tuple[str, ModelTraffic]]:
        """Yield name and state of each model that has had traffic settings, by name."""
        yield from sorted(self._states.items())

    def shares(self, name: str) -> dict[int, float]:
        """Return the part of the requests that each ready version gets, nothing where the latest gets all."""
        settings, _ = self._settings(name)
        return _shares(_ready(self._repository.loaded(name), settings))

    def _settings(self, name: str) -> tuple[TrafficSettings | None, str]:
        state = self._states.get(name)
        if state is not None and state.given is not None:
            return state.given, "api"
        models = self._repository.loaded(name)
        own = models[-1].plan.traffic if models else None
        return own, "none" if own is None else "config"

    def _state(self, name: str) -> ModelTraffic:
        state = self._states.get(name)
        if state is None:
            self._forget_unknown()
            state = self._states[name] = ModelTraffic(ShadowRequests(self._run_on_thread))
            if self._is_stopped:
                state.shadow.stop()
        return state

    def _check_known(self, name: str) -> None:
        self._repository.key_for(name)
        if self._repository.is_serving(name) is None:
            raise not_found(f"Request for unknown model: '{name}' is not found")

    def _forget_unknown(self) -> None:
        """Drop what is kept of models that are no longer known, so that names that come and go take no memory."""
        for name, state in list(self._states.items()):
            if self._repository.is_serving(name) is None and not state.shadow.in_flight_count:
                del self._states[name]


def _ready(models: list[Model], settings: TrafficSettings | None) -> dict[int, float]:
    """Return the weights of the versions that can serve; of those that can't for a moment, when no other can."""
    weights = {} if settings is None else settings.weights
    able = [model for model in models if model.plan.version in weights and not model.refusal]
    now = [model for model in able if not model.unready_reason] or able
    return {model.plan.version: weights[model.plan.version] for model in now}


def _shares(ready: Mapping[int, float]) -> dict[int, float]:
    return Split(ready).shares() if ready else {}

"""Which agents there are, and the run of those that a config names.

Owns finding them: the built-in ones, then entry points. Everything blocks, and runs code of other packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from naiad.errors import InferenceServerError, invalid_argument
from naiad.repository.agents.base import AgentModel, RepositoryAgent
from naiad.repository.agents.checksum import ChecksumAgent
from naiad.repository.agents.lifecycle import AgentLifecycle

ENTRY_POINT_GROUP = "naiad.repository_agents"

_BUILT_IN: Mapping[str, type[RepositoryAgent]] = MappingProxyType({"checksum": ChecksumAgent})


class AgentTable:
    """Agents by name. `own` are known besides the built-in ones and stand for entry points of the same name."""

    def __init__(self, own: Mapping[str, type[RepositoryAgent]] = MappingProxyType({})) -> None:
        self._own = {**_BUILT_IN, **own}

    def run(self, name: str, directory: Path, config: Any) -> tuple[Path, AgentLifecycle]:
        """Have the agents of `config` look at the model `name`, in their order; return the folder that is to be loaded, and
        what is to be told how that went.

        Raises INVALID_ARGUMENT naming the agent, for one that isn't known, refuses the model or fails; those that have looked
        at it are told then.
        """
        told: list[tuple[str, RepositoryAgent, AgentModel]] = []
        for entry in config.model_repository_agents.agents:
            model = AgentModel(name, directory, config)
            try:
                agent = self._find(entry.name)(dict(entry.parameters))
                told.append((entry.name, agent, model))
                directory = self._folder(agent.load(model), directory)
            except (Exception, SystemExit) as error:
                AgentLifecycle(told).load_fail()
                # Code of other packages runs here, sys.exit() included; whatever it raises is its reason.
                raise _refusal(name, entry.name, error) from error
        return directory, AgentLifecycle(told)

    def _find(self, name: str) -> type[RepositoryAgent]:
        if name in self._own:
            return self._own[name]
        offers = [offer for offer in entry_points(group=ENTRY_POINT_GROUP) if offer.name == name]
        if not offers:
            known = ", ".join(sorted({*self._own, *(offer.name for offer in entry_points(group=ENTRY_POINT_GROUP))}))
            raise invalid_argument(
                f"there is no such agent; known are {known}; others come by entry points, {ENTRY_POINT_GROUP}"
            )
        if len({offer.value for offer in offers}) > 1:
            raise invalid_argument(f"more than one package offers it: {', '.join(sorted(offer.value for offer in offers))}")
        found = offers[0].load()
        if not (isinstance(found, type) and issubclass(found, RepositoryAgent)):
            raise invalid_argument(f"{offers[0].value} must be a subclass of naiad.repository.agents.base.RepositoryAgent")
        return found

    def _folder(self, returned: object, before: Path) -> Path:
        if returned is None:
            return before
        if not isinstance(returned, Path) or not returned.is_dir():
            raise invalid_argument(f"it returned {returned!r}, must be None or the path of a folder")
        return returned


def _refusal(model: str, agent: str, error: Exception | SystemExit) -> InferenceServerError:
    reason = error.message if isinstance(error, InferenceServerError) else f"{type(error).__name__}: {error}"
    return invalid_argument(f"model '{model}': repository agent '{agent}': {reason}")

"""What a repository agent is: the interface for built-in ones and for those of other packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class AgentModel:
    """The model that is about to be loaded, or that was.

    `directory` is its folder, or what the agent before this one has handed over. `config` is its ModelConfig, to be read only.
    """

    name: str
    directory: Path
    config: Any


class RepositoryAgent(ABC):
    """One entry of `model_repository_agents`. It is made anew for each load, on a loading thread.

    It hears LOAD, LOAD_COMPLETE, UNLOAD, UNLOAD_COMPLETE, or LOAD and LOAD_FAIL, one after the other, each once with the model
    of `load`, on any thread; all may block. Only LOAD has a say: what the others raise is logged.

    `parameters` are those of the entry; whoever makes use of them refuses what it doesn't know.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.parameters = parameters

    @abstractmethod
    def load(self, model: AgentModel) -> Path | None:
        """LOAD: look at a model before its backend does.

        Return None to go on, or another folder that is to be loaded as this model; it must stay until `load_fail` or
        `unload_complete`, and is the agent's to remove. Raise any exception to refuse the load: its text is what the client is
        told.
        """

    def load_complete(self, model: AgentModel) -> None:  # noqa: B027 - to be overridden, or not
        """LOAD_COMPLETE: the model serves."""

    def load_fail(self, model: AgentModel) -> None:  # noqa: B027
        """LOAD_FAIL: this or another agent has refused the model, or it couldn't be loaded; nothing of it is left."""

    def unload(self, model: AgentModel) -> None:  # noqa: B027
        """UNLOAD: the model takes no more requests, those that it has go on; also when a reload has taken its place."""

    def unload_complete(self, model: AgentModel) -> None:  # noqa: B027
        """UNLOAD_COMPLETE: nothing of the model is left."""

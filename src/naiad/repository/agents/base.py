"""What a repository agent is: the interface for built-in ones and for those of other packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class AgentModel:
    """The model that is about to be loaded.

    `directory` is its folder, or what the agent before this one has handed over. `config` is its ModelConfig, to be read only.
    """

    name: str
    directory: Path
    config: Any


class RepositoryAgent(ABC):
    """One entry of `model_repository_agents`. It is made anew for each load, on a loading thread.

    `parameters` are those of the entry; whoever makes use of them refuses what it doesn't know.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.parameters = parameters

    @abstractmethod
    def load(self, model: AgentModel) -> Path | None:
        """Look at a model before its backend does; called once, may block.

        Return None to go on, or another folder that is to be loaded as this model; it must stay for as long as the model does,
        and is the agent's to remove. Raise any exception to refuse the load: its text is what the client is told.
        """

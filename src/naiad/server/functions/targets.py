"""From `module:function` on the command line to a model: its source, and the backend that runs it in worker processes.

Owns that step. The function itself is imported in the worker only, which also completes the configuration from its signature.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from naiad.backends.base import ModelFiles, WorkerProgram
from naiad.errors import invalid_argument
from naiad.proto import message_class
from naiad.repository.layout import ModelSource
from naiad.server.embedded.config import BACKEND, TARGET_PARAMETER

_FOLDER = Path(__file__).parent / "in_worker"


def function_sources(targets: Iterable[str], directory: Path) -> dict[str, ModelSource]:
    """Return a model for each `module:function`, by the function's name; modules are found from `directory`.

    Raises INVALID_ARGUMENT for two functions of one name.
    """
    sources: dict[str, ModelSource] = {}
    for target in dict.fromkeys(targets):
        name = target.partition(":")[2].rpartition(".")[2]
        if name in sources:
            raise invalid_argument(f"{target}: there is a function '{name}' already")
        config = message_class("inference.ModelConfig")(name=name, backend=BACKEND)
        config.parameters[TARGET_PARAMETER].string_value = target
        sources[name] = ModelSource(name, directory, None, {1: directory}, config=config)
    return sources


class FunctionInWorkerBackend:
    """See `WorkerBackend`. The model's folder is the one that modules are found from."""

    name: ClassVar[str] = BACKEND
    is_isolated: ClassVar[bool] = True
    default_instance_count: ClassVar[int] = 1

    @classmethod
    def program(cls, files: ModelFiles) -> WorkerProgram:
        """See `WorkerBackend.program`."""
        return WorkerProgram(
            interpreter=Path(sys.executable),
            is_own_interpreter=True,
            variables={},
            model_file=_FOLDER / "function_model.py",
            model_directory=files.directory,
            version_directory=files.directory,
            backend_directory=_FOLDER,
        )

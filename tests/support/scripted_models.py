"""Models of the scripted backend, and the test's hand on them while a server runs them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from model_folders import write_model

PACKAGE = Path(__file__).parent / "scripted_backend"

# What a server process needs to find the backend's package, and what this one finds.
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH"))))}


class ScriptedModel:
    """One model. `hold` a value of X before it is sent, or "load" before the server starts, and its execution waits."""

    def __init__(self, repository: Path, name: str, more: str = "", max_batch_size: int = 8, **parameters: str) -> None:
        self.name = name
        self._control = repository.parent / f"{repository.name}-control" / name
        self._control.mkdir(parents=True)
        parameters["control"] = str(self._control)
        lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in parameters.items()]
        write_model(
            repository,
            name,
            f"""
            backend: "scripted"
            max_batch_size: {max_batch_size}
            input [
              {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }},
              {{ name: "MS" data_type: TYPE_INT32 dims: [ 1 ] optional: true }}
            ]
            output [{{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }}]
            {more}
            """
            + "\n".join(lines),
        )

    def hold(self, *values: float | str) -> None:
        """Let executions with one of `values` in X wait from now on."""
        for value in values:
            self._hold_file(value).touch()

    def release(self, *values: float | str) -> None:
        """Let them go on; without values, all of them."""
        for path in list(map(self._hold_file, values)) or list(self._control.glob("hold-*")):
            path.unlink(missing_ok=True)

    def executions(self) -> list[list[float]]:
        """Return the values of X of each execution that has begun, in order."""
        notes = self._control / "ran.jsonl"
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    def loaders(self) -> list[int]:
        """Return the numbers of the processes that have begun to load it, in order."""
        notes = self._control / "loaded.txt"
        return [int(line.split()[0]) for line in notes.read_text().splitlines()] if notes.exists() else []

    def ran(self, value: float) -> bool:
        """Return whether an execution with `value` has begun."""
        return any(value in values for values in self.executions())

    def _hold_file(self, value: float | str) -> Path:
        return self._control / f"hold-{value if isinstance(value, str) else format(value, 'g')}"

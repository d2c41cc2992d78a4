"""What a check has found out about one model, and where each remark belongs.

Owns the values and the way from a field's path to a line of the file. Doesn't own the checks: `steps`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from naiad.config.findings import FieldPath, Finding
from naiad.config.plan import ModelPlan
from naiad.config.positions import Position, nearest
from naiad.repository.layout import ModelSource

_PLACE = re.compile(r":(\d+):(\d+): ")


@dataclass(frozen=True, slots=True)
class Remark:
    """An error or a warning. `position` is None for what isn't in the file; `field` is "" for what no field is about."""

    text: str
    place: str
    position: Position | None = None
    field: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """The config (a copy) after one step of its completion, and where that step took its values from."""

    origin: str
    config: Any


@dataclass(slots=True, eq=False)
class CheckedModel:
    """One model, filled while it is checked.

    `config` is the completed ModelConfig, None when its file can't be read; `plans` has one for each version that is served,
    ascending, and is empty when there are errors. `stages` lead from the file to `config`.
    """

    source: ModelSource
    config: Any = None
    stages: list[Stage] = field(default_factory=list)
    positions: dict[FieldPath, Position] = field(default_factory=dict)
    errors: list[Remark] = field(default_factory=list)
    warnings: list[Remark] = field(default_factory=list)
    plans: list[ModelPlan] = field(default_factory=list)

    @property
    def place(self) -> str:
        """The config's file, or the model's folder when it has none."""
        return str(self.source.config_file or self.source.directory)

    def add_error(self, finding: Finding) -> None:
        """Note a mistake; the same text once only."""
        remark = self._remark(finding)
        if all(known.text != remark.text for known in self.errors):
            self.errors.append(remark)

    def add_warning(self, finding: Finding) -> None:
        """Note what works and may not be meant."""
        self.warnings.append(self._remark(finding))

    def _remark(self, finding: Finding) -> Remark:
        text, position = finding.text, nearest(self.positions, finding.path)
        if text.startswith(self.place):
            # The readers of files put the place in front themselves.
            text = text[len(self.place) :]
            found = _PLACE.match(text)
            position = Position(int(found[1]), int(found[2])) if found else None
            text = text[found.end() :] if found else text.removeprefix(": ")
        return Remark(text, self.place, position, path_text(finding.path), finding.advice)


def path_text(path: FieldPath) -> str:
    """Return a path as people write it: `input[0].dims`, `parameters['k'].string_value`."""
    text = ""
    for previous, part in zip((None, *path), path):
        if isinstance(part, int):
            text += f"[{part}]"
        elif previous is not None and previous in ("parameters", "input_map", "output_map", "metric_tags"):
            text += f"['{part}']"
        else:
            text += f".{part}" if text else part
    return text

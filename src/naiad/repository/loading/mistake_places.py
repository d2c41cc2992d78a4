"""Where the mistakes that fail a load stand in the model's config: a line of its own behind each.

Owns that line. The file is read again, since only a load that fails needs to know. Blocking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from naiad.config import pbtxt
from naiad.config.findings import FieldPath, Finding, MistakesError
from naiad.config.positions import Position, field_positions, nearest
from naiad.errors import InferenceServerError
from naiad.repository.layout import ModelSource


def with_places(error: InferenceServerError, source: ModelSource) -> InferenceServerError:
    """Return `error` with the place of each mistake that is about a field of the config's file; its first line stays."""
    if not isinstance(error, MistakesError) or source.config_file is None or source.config is not None:
        return error
    file, positions = source.config_file, _positions(source.config_file)
    return MistakesError([_placed(finding, file, positions) for finding in error.findings], error.code)


def _positions(file: Path) -> Mapping[FieldPath, Position]:
    """Return the places of all fields; none when the file has become unreadable."""
    try:
        text = pbtxt.read_text(file)
        pbtxt.parse_config(text, str(file))
    except InferenceServerError:
        return {}
    return field_positions(text)


def _placed(finding: Finding, file: Path, positions: Mapping[FieldPath, Position]) -> Finding:
    position = nearest(positions, finding.path)
    # The reader of the file names places itself.
    if position is None or finding.text.startswith(str(file)):
        return finding
    return replace(finding, text=f"{finding.text}\n  at {file}:{position}")

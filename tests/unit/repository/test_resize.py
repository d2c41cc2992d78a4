"""When a change of a config is one of instance counts only."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.config.pbtxt import parse_config
from naiad.repository.layout import ModelSource
from naiad.repository.loader import PreparedModel
from naiad.repository.resize import differs_in_counts_only
from naiad.repository.states import Origin
from naiad.repository.tree import TreeState

ONE = 'name: "m" max_batch_size: 8 instance_group { name: "g" count: 1 }'


def source(config: str = "c", files: str = "f", versions: tuple[int, ...] = (1,)) -> ModelSource:
    folder = Path("/models/m")
    return ModelSource("m", folder, None, {number: folder / str(number) for number in versions}, state=TreeState(config, files))


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        (ONE.replace("count: 1", "count: 2"), source("d"), True),
        (ONE, source("d"), False),
        (ONE.replace("count: 1", "count: 2"), source("d", files="g"), False),
        (ONE.replace("count: 1", "count: 2"), source("d", versions=(1, 2)), False),
        (ONE.replace("count: 1", "count: 2").replace("8", "9"), source("d"), False),
        (ONE + 'instance_group { name: "h" count: 1 }', source("d"), False),
        (ONE.replace("count: 1", "count: 2 kind: KIND_GPU"), source("d"), False),
    ],
)
def test_only_counts_may_differ(text, now, expected):
    origin = Origin(source(), parse_config(ONE, "config.pbtxt"))
    prepared = PreparedModel(now, parse_config(text, "config.pbtxt"), object, {}, (1,))
    assert differs_in_counts_only(origin, prepared) is expected

"""Instances over GPUs by free memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.defaults import normalise
from naiad.config.pbtxt import parse_config
from naiad.config.validate import all_findings
from naiad.devices.inventory import UsableGpus
from naiad.devices.placement import place_by_free_memory

GPUS = UsableGpus((0, 1, 2), True)
FREE = {0: 10_000, 1: 30_000, 2: 16_000}


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (1, 0, {1: 1}),
        (2, 0, {1: 1, 2: 1}),
        (4, 0, {0: 1, 1: 2, 2: 1}),
        (1, 5_000, {1: 1}),
        (4, 10_000, {0: 1, 1: 2, 2: 1}),
        (3, 30_000, {0: 1, 1: 1, 2: 1}),
    ],
)
def test_each_instance_goes_to_where_most_is_free_after_those_before_it(count: int, size: int, expected: dict) -> None:
    assert place_by_free_memory(count, FREE, size) == expected


def test_without_gpus_nothing_is_placed() -> None:
    assert place_by_free_memory(3, {}, 0) == {}


@given(
    count=st.integers(0, 50),
    free=st.dictionaries(st.integers(0, 7), st.integers(0, 100), min_size=1),
    size=st.integers(1, 40),
)
def test_all_are_placed_and_no_move_would_leave_more_free_on_the_fullest(count: int, free: dict, size: int) -> None:
    placed = place_by_free_memory(count, free, size)
    assert sum(placed.values()) == count
    left = {gpu: bytes_free - size * placed.get(gpu, 0) for gpu, bytes_free in free.items()}
    for gpu in placed:
        assert left[gpu] + size >= max(left.values())


def normalised(text: str):
    config = parse_config(f'name: "m" backend: "python" {text}', "f")
    normalise(config, default_instance_count=1, gpus=GPUS, free_memory=lambda: FREE)
    return config


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def groups_of(text: str) -> list[tuple[str, int, list[int]]]:
    return [(group.name, group.count, list(group.gpus)) for group in normalised(text).instance_group]


BY_MEMORY = parameter("gpu_placement", "free_memory")


def test_a_group_becomes_as_many_as_its_gpus_get_unequal_numbers() -> None:
    text = f"instance_group {{ kind: KIND_GPU count: 4 }} {BY_MEMORY}"
    assert groups_of(text) == [("m_0", 2, [1]), ("m_0", 1, [0, 2])]
    assert groups_of(f"{text} {parameter('gpu_memory_bytes', '10K')}") == [("m_0", 2, [1]), ("m_0", 1, [0, 2])]


def test_groups_share_what_is_free() -> None:
    groups = "instance_group { kind: KIND_GPU count: 1 } instance_group { kind: KIND_GPU count: 1 }"
    assert groups_of(f"{groups} {BY_MEMORY} {parameter('gpu_memory_bytes', '20K')}") == [("m_0", 1, [1]), ("m_1", 1, [2])]


def test_groups_that_name_gpus_or_none_at_all_are_left_alone() -> None:
    text = f"instance_group {{ kind: KIND_GPU count: 2 gpus: 0 }} instance_group {{ kind: KIND_CPU count: 2 }} {BY_MEMORY}"
    assert groups_of(text) == [("m_0", 2, [0]), ("m_1", 2, [])]


def test_without_the_parameter_every_gpu_has_the_count() -> None:
    assert groups_of("instance_group { kind: KIND_GPU count: 2 }") == [("m_0", 2, [0, 1, 2])]


def test_to_normalise_twice_changes_nothing() -> None:
    config = normalised(f"instance_group {{ kind: KIND_GPU count: 4 }} {BY_MEMORY}")
    before = str(config)
    normalise(config, default_instance_count=1, gpus=GPUS, free_memory=dict)
    assert str(config) == before


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("gpu_placement", "best", "parameter 'gpu_placement' is 'best', must be each or free_memory"),
        ("gpu_memory_bytes", "much", "parameter 'gpu_memory_bytes' is 'much', must be a number of bytes"),
        ("gpu_memory_bytes", "0", "parameter 'gpu_memory_bytes' is '0'"),
    ],
)
def test_wrong_values_are_named(key: str, value: str, text: str) -> None:
    config = normalised(parameter(key, value))
    assert [text in finding.text for finding in all_findings(config, "m", gpus=GPUS) if "gpu_" in finding.text] == [True]

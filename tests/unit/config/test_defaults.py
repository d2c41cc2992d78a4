"""What is filled in before validation, and what is left alone."""

import pytest

from naiad.config.defaults import normalise
from naiad.config.pbtxt import parse_config
from naiad.devices.inventory import UsableGpus


def normalised(text, default_instance_count=1, gpu_count=0, **more):
    config = parse_config(f'name: "m" {text}', "f")
    gpus = UsableGpus(tuple(range(gpu_count)), True)
    normalise(config, default_instance_count=default_instance_count, gpus=gpus, **more)
    return config


def groups_of(config):
    return [(group.name, group.count, group.Kind.Name(group.kind), list(group.gpus)) for group in config.instance_group]


@pytest.mark.parametrize("text", ["", "version_policy { }", "version_policy { latest { } }"])
def test_the_latest_version_is_served(text):
    policy = normalised(text).version_policy
    assert (policy.WhichOneof("policy_choice"), policy.latest.num_versions) == ("latest", 1)


@pytest.mark.parametrize("choice", ["all { }", "specific { versions: 3 }", "latest { num_versions: 2 }"])
def test_a_given_version_policy_stays(choice):
    text = f'name: "m" version_policy {{ {choice} }}'
    assert parse_config(text, "f").version_policy == normalised(f"version_policy {{ {choice} }}").version_policy


def test_the_preferred_batch_size_is_the_greatest():
    assert list(normalised("max_batch_size: 8 dynamic_batching { }").dynamic_batching.preferred_batch_size) == [8]


def test_given_preferred_batch_sizes_stay():
    config = normalised("max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 2, 4 ] }")
    assert list(config.dynamic_batching.preferred_batch_size) == [2, 4]


def test_a_model_that_does_not_batch_has_no_preferred_batch_size():
    assert list(normalised("dynamic_batching { }").dynamic_batching.preferred_batch_size) == []


def test_a_model_without_scheduler_gets_none():
    assert normalised("max_batch_size: 8").WhichOneof("scheduling_choice") is None


def test_a_sequence_may_be_idle_for_a_second():
    assert normalised("sequence_batching { }").sequence_batching.max_sequence_idle_microseconds == 1_000_000
    config = normalised("sequence_batching { max_sequence_idle_microseconds: 5 }")
    assert config.sequence_batching.max_sequence_idle_microseconds == 5


def test_oldest_prefers_the_greatest_batch():
    config = normalised("max_batch_size: 8 sequence_batching { oldest { } }")
    assert list(config.sequence_batching.oldest.preferred_batch_size) == [8]


def test_pinned_memory_is_on_unless_said_otherwise():
    optimization = normalised("optimization { input_pinned_memory { enable: false } }").optimization
    assert (optimization.input_pinned_memory.enable, optimization.output_pinned_memory.enable) == (False, True)


def test_without_groups_there_is_one_called_as_the_model():
    assert groups_of(normalised("")) == [("m", 1, "KIND_CPU", [])]


def test_unnamed_groups_are_called_by_model_and_index():
    config = normalised('instance_group [ { count: 1 }, { name: "g" }, { } ]')
    assert [group.name for group in config.instance_group] == ["m_0", "g", "m_2"]


def test_a_cpu_group_without_count_gets_the_backends():
    assert [group.count for group in normalised("", default_instance_count=2).instance_group] == [2]


def test_other_kinds_without_count_get_one():
    config = normalised("instance_group [ { kind: KIND_MODEL }, { kind: KIND_GPU } ]", default_instance_count=2, gpu_count=1)
    assert [group.count for group in config.instance_group] == [1, 1]


def test_a_negative_count_is_left_for_validation():
    assert [group.count for group in normalised("instance_group { count: -1 }").instance_group] == [-1]


def test_auto_is_gpu_where_the_gpus_are():
    config = normalised("instance_group [ { }, { gpus: [ 0 ] }, { gpus: [ 2 ] } ]", gpu_count=2)
    assert groups_of(config) == [
        ("m_0", 1, "KIND_GPU", [0, 1]),
        ("m_1", 1, "KIND_GPU", [0]),
        ("m_2", 1, "KIND_CPU", [2]),
    ]


def test_auto_stays_on_the_cpu_for_a_backend_that_takes_no_gpus():
    config = normalised("instance_group [ { gpus: [ 0 ] }, { kind: KIND_GPU } ]", gpu_count=1, is_auto_gpu=False)
    assert groups_of(config) == [("m_0", 1, "KIND_CPU", [0]), ("m_1", 1, "KIND_GPU", [0])]


def test_auto_means_usable_gpus_only():
    config = parse_config('name: "m" instance_group [ { }, { gpus: [ 1 ] } ]', "f")
    normalise(config, default_instance_count=1, gpus=UsableGpus((0, 2), True, (7, 0)))
    assert groups_of(config) == [("m_0", 1, "KIND_GPU", [0, 2]), ("m_1", 1, "KIND_CPU", [1])]


def test_an_ensemble_gets_neither_groups_nor_optimization():
    config = normalised('platform: "ensemble" ensemble_scheduling { }')
    assert list(config.instance_group) == []
    assert not config.HasField("optimization")


@pytest.mark.parametrize("text", ["", "max_batch_size: 4 dynamic_batching { }", "instance_group [ { }, { kind: KIND_MODEL } ]"])
def test_twice_is_as_once(text):
    once = normalised(text, default_instance_count=2)
    twice = normalised(text, default_instance_count=2)
    normalise(twice, default_instance_count=2)
    assert once == twice

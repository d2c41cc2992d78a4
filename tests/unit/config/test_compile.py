"""From a config to the plan: shapes, scheduling, instances, and the fields that have no effect yet."""

from pathlib import Path

import pytest

from naiad.config.compile import compile_plan, unknown_policies, unused_fields
from naiad.config.compile.unused import UNUSED_FIELDS
from naiad.config.defaults import normalise
from naiad.config.json_form import to_json
from naiad.config.pbtxt import parse_config
from naiad.config.plan import InstancePlan, QueuePolicy
from naiad.devices.inventory import UsableGpus
from naiad.proto import message_class
from naiad.tensor import datatype


def normalised(text, gpu_count=0):
    config = parse_config(f'name: "m" backend: "identity" {text}', "f")
    normalise(config, default_instance_count=1, gpus=UsableGpus(tuple(range(gpu_count)), True))
    return config


def plan_of(text, gpu_count=0):
    config = normalised(text, gpu_count)
    return compile_plan(config, version=3, directory=Path("/models/m"), version_directory=Path("/models/m/3"))


def test_the_plan_says_who_the_model_is_and_where():
    plan = plan_of('platform: "p" default_model_filename: "f.onnx" parameters { key: "k" value { string_value: "v" } }')
    assert (plan.name, plan.version, plan.backend, plan.platform, plan.model_file) == ("m", 3, "identity", "p", "f.onnx")
    assert (Path("/models/m"), Path("/models/m/3")) == (plan.directory, plan.version_directory)
    assert plan.parameters == {"k": "v"}
    assert not plan.is_batching
    assert not plan.is_decoupled


def test_the_plan_carries_the_config_as_it_is_shown():
    text = 'metric_tags { key: "a" value: "b" } model_transaction_policy { decoupled: true }'
    plan = plan_of(text)
    assert to_json(normalised(text)) == plan.config
    assert (plan.metric_tags, plan.is_decoupled) == ({"a": "b"}, True)


def test_a_batching_model_has_a_leading_variable_dim():
    plan = plan_of('max_batch_size: 4 input { name: "x" data_type: TYPE_STRING dims: [ 2, 3 ] reshape { shape: 6 } }')
    (tensor,) = plan.inputs
    assert (tensor.dims, tensor.shape, tensor.backend_shape, tensor.has_reshape) == ((2, 3), (-1, 2, 3), (-1, 6), True)
    assert tensor.datatype is datatype.BYTES
    assert not tensor.is_variable


def test_a_model_that_does_not_batch_has_its_dims():
    (tensor,) = plan_of('output { name: "y" data_type: TYPE_BF16 dims: [ 2, -1 ] }').outputs
    assert (tensor.dims, tensor.shape, tensor.backend_shape, tensor.has_reshape) == ((2, -1), (2, -1), (2, -1), False)
    assert tensor.is_variable


def test_an_empty_reshape_leaves_the_batch_dim():
    text = 'max_batch_size: 4 output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { shape: [ ] } }'
    (tensor,) = plan_of(text).outputs
    assert (tensor.shape, tensor.backend_shape, tensor.has_reshape) == ((-1, 1), (-1,), True)


def test_a_reshape_to_the_same_dims_is_none():
    (tensor,) = plan_of('input { name: "x" data_type: TYPE_FP32 dims: 2 reshape { shape: 2 } }').inputs
    assert not tensor.has_reshape


def test_inputs_that_are_not_optional_are_required():
    plan = plan_of(
        'input [ { name: "a" data_type: TYPE_FP32 dims: 1 }, { name: "b" data_type: TYPE_FP32 dims: 1 optional: true } ]'
    )
    assert {"a"} == plan.required_inputs
    assert list(plan.inputs_by_name) == ["a", "b"]


def test_labels_are_read_from_the_models_folder(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    config = normalised('output { name: "y" data_type: TYPE_FP32 dims: 2 label_filename: "labels.txt" }')
    plan = compile_plan(config, version=1, directory=tmp_path, version_directory=tmp_path / "1")
    assert plan.outputs_by_name["y"].labels == ("cat", "dog")


@pytest.mark.parametrize(
    "name",
    [field.name for field in message_class("inference.ModelConfig").DESCRIPTOR.file.enum_types_by_name["DataType"].values][1:],
)
def test_every_data_type_has_a_datatype(name):
    (tensor,) = plan_of(f'input {{ name: "x" data_type: {name} dims: 1 }}').inputs
    assert name == tensor.datatype.config_name


def test_without_the_dynamic_batcher_there_is_no_plan_of_it():
    assert plan_of("max_batch_size: 8").dynamic_batching is None


def test_the_dynamic_batcher_is_compiled():
    plan = plan_of(
        """max_batch_size: 8
        input [ { name: "fixed" data_type: TYPE_FP32 dims: 1 }, { name: "free" data_type: TYPE_FP32 dims: -1 optional: true },
                { name: "ragged" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true } ]
        dynamic_batching {
          preferred_batch_size: [ 8, 4, 4 ] max_queue_delay_microseconds: 50 preserve_ordering: true
          priority_levels: 3 default_priority_level: 2
          default_queue_policy { max_queue_size: 7 }
          priority_queue_policy { key: 1 value {
            timeout_action: DELAY default_timeout_microseconds: 9 allow_timeout_override: true } }
        }"""
    ).dynamic_batching
    assert (
        plan.max_batch_size,
        plan.preferred_batch_sizes,
        plan.max_queue_delay_us,
        plan.preserve_ordering,
    ) == (8, (4, 8), 50, True)
    assert (plan.levels, plan.default_level) == (3, 2)
    assert QueuePolicy(max_size=7) == plan.default_policy
    assert {1: QueuePolicy(timeout_us=9, is_delay=True, allow_timeout_override=True)} == plan.policies
    assert ({"ragged"}, ("free",), True) == (plan.ragged_inputs, plan.variable_inputs, plan.has_optional_inputs)


def test_the_only_instance_is_called_by_model_and_index():
    assert (InstancePlan("m_0", "CPU", -1, "m"),) == plan_of("").instances


def test_instances_of_an_unnamed_group_are_called_by_group_and_index():
    assert [instance.name for instance in plan_of("instance_group { count: 2 }").instances] == ["m_0_0", "m_0_1"]


def test_a_group_on_gpus_has_its_count_on_each():
    plan = plan_of('instance_group { name: "g" kind: KIND_GPU count: 2 gpus: [ 0, 1 ] passive: true }', gpu_count=2)
    assert (
        InstancePlan("g_0_gpu0", "GPU", 0, "g", is_passive=True, host_policy="gpu_0"),
        InstancePlan("g_1_gpu0", "GPU", 0, "g", is_passive=True, host_policy="gpu_0"),
        InstancePlan("g_0_gpu1", "GPU", 1, "g", is_passive=True, host_policy="gpu_1"),
        InstancePlan("g_1_gpu1", "GPU", 1, "g", is_passive=True, host_policy="gpu_1"),
    ) == plan.instances


def test_a_host_policy_is_the_groups_own_or_that_of_its_kind():
    plan = plan_of('instance_group [ { host_policy: "p" }, { kind: KIND_MODEL }, { kind: KIND_CPU } ]')
    assert [instance.host_policy for instance in plan.instances] == ["p", "model", "cpu"]


def test_two_groups_of_one_name_count_on():
    plan = plan_of('instance_group [ { name: "g" count: 2 }, { name: "g" kind: KIND_MODEL } ]')
    assert [(i.name, i.kind) for i in plan.instances] == [("g_0", "CPU"), ("g_1", "CPU"), ("g_2", "MODEL")]


def test_the_runtime_of_python_based_backends_is_used():
    assert unused_fields(normalised('runtime: "model.py"')) == []


def test_a_plain_config_has_no_unused_field():
    assert unused_fields(normalised('max_batch_size: 4 dynamic_batching { } input { name: "x" format: FORMAT_NHWC }')) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('runtime: "x.so"', "runtime"),
        ('cc_model_filenames { key: "7.5" value: "f" }', "cc_model_filenames"),
        ("optimization { priority: PRIORITY_MAX }", "optimization.priority"),
        ("optimization { cuda { graphs: true } }", "optimization.cuda"),
        ("optimization { gather_kernel_buffer_threshold: 1 }", "optimization.gather_kernel_buffer_threshold"),
        ("optimization { eager_batching: true }", "optimization.eager_batching"),
        ("input { } input { is_shape_tensor: true }", "input.is_shape_tensor"),
        ("input { is_non_linear_format_io: true }", "input.is_non_linear_format_io"),
        ("output { is_shape_tensor: true }", "output.is_shape_tensor"),
        ("output { is_non_linear_format_io: true }", "output.is_non_linear_format_io"),
        ('instance_group { profile: "1" }', "instance_group.profile"),
        ("instance_group { secondary_devices { } }", "instance_group.secondary_devices"),
        ("model_operations { }", "model_operations"),
        ("model_metrics { }", "model_metrics"),
    ],
)
def test_a_field_without_effect_is_named(text, path):
    assert [path] == unused_fields(normalised(text))
    assert path in UNUSED_FIELDS


def test_a_policy_that_nobody_describes_is_named():
    config = normalised('instance_group [ { host_policy: "p" }, { host_policy: "q" }, { } ]')
    found = list(unknown_policies(config, {"p"}))
    assert [index for index, _ in found] == [1]
    assert "names host_policy 'q', which no --host-policy describes" in found[0][1]


@pytest.mark.parametrize(("text", "expected"), [("", True), ("on", True), ("off", False)])
def test_a_model_refuses_early_unless_its_parameter_says_off(text, expected):
    parameter = f'parameters {{ key: "naiad_early_refusal" value {{ string_value: "{text}" }} }}' if text else ""
    plan = plan_of("max_batch_size: 4 dynamic_batching { }" + parameter)
    assert plan.dynamic_batching.refuses_early is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_batch_size: 4 dynamic_batching { }", True),
        ("max_batch_size: 4 dynamic_batching { priority_levels: 2 default_priority_level: 1 }", True),
        ("max_batch_size: 4 dynamic_batching { default_queue_policy { max_queue_size: 3 } }", True),
        ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 4 }", True),
        ("max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 2, 4 ] }", False),
        ("max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 1 }", False),
        ("max_batch_size: 1 dynamic_batching { }", False),
        ("dynamic_batching { }", False),
    ],
)
def test_batching_is_adaptive_when_nothing_is_said_of_sizes_and_delays(text, expected):
    off = 'parameters { key: "naiad_adaptive_batching" value { string_value: "off" } }'
    assert plan_of(text).dynamic_batching.is_adaptive is expected
    assert not plan_of(text + off).dynamic_batching.is_adaptive


def test_the_latency_target_is_kept_in_microseconds():
    target = 'parameters { key: "naiad_latency_target_ms" value { string_value: "2.5" } }'
    assert plan_of("max_batch_size: 4 dynamic_batching { }" + target).dynamic_batching.latency_target_us == 2500
    assert plan_of("max_batch_size: 4 dynamic_batching { }").dynamic_batching.latency_target_us == 0

"""Every rule of a config's validation with its message; a config that keeps them all passes."""

import pytest

from naiad.config.defaults import normalise
from naiad.config.pbtxt import parse_config
from naiad.config.validate import (
    validate,
    validate_batch_tensors,
    validate_general,
    validate_instances,
    validate_policies,
    validate_scheduling,
    validate_tensors,
)
from naiad.devices.inventory import UsableGpus
from naiad.errors import Code, InferenceServerError

GOOD = """
name: "m" backend: "onnxruntime" platform: "onnxruntime_onnx" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ] priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 value { } }
}
instance_group [ { count: 2 kind: KIND_CPU } ]
version_policy { specific { versions: [ 0, 3 ] } }
"""


def config_of(text):
    return parse_config(text, "f")


def message_of(check, text, *arguments, code=Code.INVALID_ARGUMENT, **keywords):
    with pytest.raises(InferenceServerError) as caught:
        check(config_of(text), *arguments, **keywords)
    assert code is caught.value.code
    return caught.value.message


def test_a_good_config_passes():
    config = config_of(GOOD)
    normalise(config, default_instance_count=2)
    validate(config, "m")


def test_all_mistakes_are_told_at_once():
    text = 'backend: "identity" max_batch_size: -1 input { } instance_group { count: -1 } version_policy { specific { } }'
    message = message_of(validate, text, "m")
    assert message.startswith("5 mistakes:\n")
    assert all(
        part in message for part in ("'name' for m", "max_batch_size", "model input", "instance group", "version_policy")
    )


# General


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('backend: "identity"', "model configuration must specify 'name' for m"),
        ('name: "m" platform: "abacus"', "unexpected platform type 'abacus' for m"),
        ('name: "m"', "unexpected platform type '' for m"),
        (
            'name: "m" platform: "tensorrt_plan" backend: "onnxruntime"',
            (
                "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime for m; allowed platforms: "
                "onnxruntime_onnx"
            ),
        ),
        ('name: "m" backend: "identity" max_batch_size: -1', "'max_batch_size' must be non-negative value for m, got -1"),
        ('name: "m" platform: "ensemble"', "platform 'ensemble' needs 'ensemble_scheduling' for m"),
        (
            'name: "m" platform: "ensemble" backend: "python"',
            (
                "2 mistakes:\nensemble model 'm' must have empty backend, got 'python'\n"
                "platform 'ensemble' needs 'ensemble_scheduling' for m"
            ),
        ),
    ],
)
def test_a_general_mistake_is_refused(text, message):
    assert message == message_of(validate_general, text, "m")


def test_a_backend_without_platforms_takes_any():
    validate_general(config_of('name: "m" backend: "python" platform: "mine"'), "m")


# Inputs and outputs

RANGE = "dimension must be integer >= 1, or -1 to indicate a variable-size dimension"


@pytest.mark.parametrize("kind", ["input", "output"])
@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ("data_type: TYPE_FP32 dims: 1", "model {kind} must specify 'name' for m"),
        ('name: "x" dims: 1', "model {kind} 'x' must specify 'data_type' for m"),
        ('name: "x" data_type: TYPE_FP32', "model {kind} 'x' must specify 'dims' for m"),
        (
            'name: "x" data_type: TYPE_FP32 dims: [ 1, 0 ]',
            f"model {{kind}} 'x' has dims [1,0]: {RANGE} for m",
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: -2',
            f"model {{kind}} 'x' has dims [-2]: {RANGE} for m",
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 0 ] }',
            f"model {{kind}} 'x' has reshape [2,0]: {RANGE} for m",
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: 1 reshape { shape: [ ] }',
            "model {kind} 'x' cannot have empty reshape for non-batching model as scalar tensors are not supported for m",
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 3 ] }',
            "model {kind} 'x' has different size for dims and reshape: dims [4], reshape [2,3] for m",
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ 4 ] }',
            (
                "model {kind} 'x' has different number of variable-size dimensions for dims and reshape: "
                "dims [-1,4], reshape [4] for m"
            ),
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: [ 2, -1, 4 ] reshape { shape: [ 8, -1 ] }',
            "model {kind} 'x' has different size for dims and reshape: dims [2,-1,4], reshape [8,-1] for m",
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: [ 4294967296, 4294967296 ] reshape { shape: 1 }',
            "model {kind} 'x' has different size for dims and reshape: dims [4294967296,4294967296], reshape [1] for m",
        ),
        (
            'name: "x" data_type: TYPE_INT32 dims: 1 is_shape_tensor: true',
            "model {kind} 'x' sets is_shape_tensor, which only platform tensorrt_plan has, got '' for m",
        ),
        (
            'name: "x" data_type: TYPE_FP32 dims: [ 1, 2, 3 ] is_non_linear_format_io: true',
            "model {kind} 'x' sets is_non_linear_format_io, which only platform tensorrt_plan has, got '' for m",
        ),
    ],
)
def test_a_wrong_tensor_is_refused(kind, tensor, message):
    assert message.format(kind=kind) == message_of(validate_tensors, f'name: "m" {kind} {{ {tensor} }}')


@pytest.mark.parametrize("kind", ["input", "output"])
def test_equal_names_on_one_side_are_refused(kind):
    tensor = f'{kind} {{ name: "x" data_type: TYPE_FP32 dims: 1 }} '
    assert f"model {kind} 'x' is given twice for m" == message_of(validate_tensors, f'name: "m" {tensor * 2}')


def test_non_linear_formats_need_three_dims():
    text = 'name: "m" platform: "tensorrt_plan" input { name: "x" data_type: TYPE_FP32 dims: 1 is_non_linear_format_io: true }'
    assert (
        message_of(validate_tensors, text) == "model input 'x' sets is_non_linear_format_io, which needs 3 dims, got [1] for m"
    )


@pytest.mark.parametrize("layout", ["FORMAT_NHWC", "FORMAT_NCHW"])
def test_an_image_format_needs_three_dims(layout):
    text = f'name: "m" input {{ name: "x" data_type: TYPE_FP32 dims: [ 3, 4 ] format: {layout} }}'
    assert f"model input 'x' has format {layout}, which needs 3 dims, got [3,4] for m" == message_of(validate_tensors, text)


@pytest.mark.parametrize(
    ("dims", "reshape"),
    [("[ 4 ]", "[ 2, 2 ]"), ("[ 1, 1 ]", "[ ]"), ("[ 2, -1, 4 ]", "[ 1, 2, -1, 2, 2 ]"), ("[ -1, -1 ]", "[ -1, 1, -1 ]")],
)
def test_a_reshape_that_holds_the_same_elements_passes(dims, reshape):
    tensor = f'{{ name: "x" data_type: TYPE_FP32 dims: {dims} reshape {{ shape: {reshape} }} }}'
    validate_tensors(config_of(f'name: "m" max_batch_size: 4 input {tensor} output {tensor}'))


# Tensors made from a batch

SIDES = 'name: "m" input { name: "x" } output { name: "y" } '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'batch_input { target_name: "b" data_type: TYPE_FP32 }',
            "batch input 'b' must have exactly 1 source_input, got 0 for m",
        ),
        (
            'batch_input { target_name: "b" data_type: TYPE_FP32 source_input: [ "x", "x" ] }',
            "batch input 'b' must have exactly 1 source_input, got 2 for m",
        ),
        (
            'batch_input { target_name: "b" data_type: TYPE_FP32 source_input: "w" }',
            "batch input 'b' has source_input 'w', which is not an input, allowed: x for m",
        ),
        (
            'batch_input { target_name: "b" data_type: TYPE_INT64 source_input: "x" }',
            "batch input 'b' has data_type TYPE_INT64, allowed: TYPE_INT32, TYPE_FP32 for m",
        ),
        ('batch_input { data_type: TYPE_INT32 source_input: "x" }', "batch input must specify 'target_name' for m"),
        ('batch_output { target_name: "y" }', "batch output 'y' must have exactly 1 source_input, got 0 for m"),
        (
            'batch_output { target_name: "w" source_input: "x" }',
            "batch output 'w' is not an output of the model, allowed: y for m",
        ),
        (
            'output { name: "t" data_type: TYPE_STRING dims: 1 } batch_output { target_name: "t" source_input: "x" }',
            "batch output 't' has data_type TYPE_STRING, which can't be cut by an input's shapes for m",
        ),
        (
            'batch_output { target_name: "y" source_input: "x" } batch_output { target_name: "y" source_input: "x" }',
            "output 'y' can be the target of one batch output only for m",
        ),
    ],
)
def test_a_wrong_batch_tensor_is_refused(text, message):
    assert message == message_of(validate_batch_tensors, SIDES + text)


def test_right_batch_tensors_pass():
    batch_input = 'batch_input { target_name: "b" data_type: TYPE_INT32 source_input: "x" } '
    validate_batch_tensors(config_of(f'{SIDES}{batch_input}batch_output {{ target_name: "y" source_input: "x" }}'))


# The dynamic batcher


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("preferred_batch_size: 0", "preferred size must be positive, got 0"),
        ("preferred_batch_size: 9", "preferred size must be <= max batch size, got 9 with max_batch_size 8"),
        ("priority_levels: 2", "default priority level must be in range [1, 2], got 0"),
        ("priority_levels: 2 default_priority_level: 3", "default priority level must be in range [1, 2], got 3"),
        (
            "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } }",
            "keys of priority_queue_policy must be in range [1, 2], got 3",
        ),
        (
            "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { } }",
            "keys of priority_queue_policy must be in range [1, 2], got 0",
        ),
        (
            "priority_queue_policy { key: 1 value { } }",
            "keys of priority_queue_policy must be absent as priority_levels is 0, got 1",
        ),
        (
            "preserve_ordering: true priority_levels: 2 default_priority_level: 1",
            "preserve_ordering needs at most 1 priority level, got 2",
        ),
        (
            "preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 }",
            "preserve_ordering excludes a timeout with action DELAY, which default_queue_policy has",
        ),
        (
            (
                "preserve_ordering: true priority_levels: 1 default_priority_level: 1 "
                "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } }"
            ),
            "preserve_ordering excludes a timeout with action DELAY, which priority_queue_policy[1] has",
        ),
    ],
)
def test_a_wrong_batcher_is_refused(settings, message):
    text = f'name: "m" max_batch_size: 8 dynamic_batching {{ {settings} }}'
    assert f"dynamic batching {message} for m" == message_of(validate_scheduling, text)


@pytest.mark.parametrize(
    "settings",
    [
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY }",
        "preserve_ordering: true default_queue_policy { default_timeout_microseconds: 1 }",
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 }",
    ],
)
def test_only_delay_with_a_timeout_breaks_the_order(settings):
    validate_scheduling(config_of(f'name: "m" max_batch_size: 8 dynamic_batching {{ {settings} }}'))


# Instance groups


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("count: -1 kind: KIND_CPU", "has count -1, must be from 1 to 4096, or 0 for the default"),
        ("count: 4097 kind: KIND_CPU", "has count 4097, must be from 1 to 4096, or 0 for the default"),
        ("kind: KIND_CPU gpus: 0", "has kind KIND_CPU but specifies one or more GPUs: [0]"),
        ("kind: KIND_MODEL gpus: 0", "has kind KIND_MODEL but specifies one or more GPUs: [0]"),
        ("kind: KIND_GPU", "has kind KIND_GPU but server does not support GPUs"),
        ('kind: KIND_CPU profile: "1"', "sets profile, which only platform tensorrt_plan has, got ''"),
    ],
)
def test_a_wrong_group_is_refused(group, message):
    text = f'name: "m" instance_group {{ name: "g" {group} }}'
    assert f"instance group g of model m {message}" == message_of(validate_instances, text)


_GPUS = "GPUs with at least the minimum required CUDA compute capability of 6.0"


@pytest.mark.parametrize("device", [-1, 2])
def test_a_gpu_that_is_not_there_is_refused(device):
    text = f'name: "m" instance_group {{ name: "g" kind: KIND_GPU gpus: [ 0, {device} ] }}'
    expected = f"instance group g of model m specifies invalid or unsupported gpu id {device}. {_GPUS} are: 0, 1"
    assert expected == message_of(validate_instances, text, gpus=UsableGpus((0, 1), True, (6, 0)))


def test_without_a_usable_gpu_none_is_available():
    text = 'name: "m" instance_group { name: "g" kind: KIND_GPU }'
    expected = f"instance group g of model m has kind KIND_GPU but no {_GPUS.replace('GPUs', 'GPUs are available')}"
    assert expected == message_of(validate_instances, text, gpus=UsableGpus((), True, (6, 0)))


def test_gpus_that_are_there_pass():
    validate_instances(config_of('instance_group { name: "g" kind: KIND_GPU gpus: [ 0, 1 ] }'), gpus=UsableGpus((0, 1), True))


@pytest.mark.parametrize("profile", ["-1", "x", "", "²"])
def test_a_profile_is_a_whole_number(profile):
    text = f'name: "m" platform: "tensorrt_plan" instance_group {{ name: "g" kind: KIND_CPU profile: "{profile}" }}'
    expected = f"instance group g of model m has profile '{profile}', must be a whole number >= 0"
    assert expected == message_of(validate_instances, text)


# Policies


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version_policy { specific { } }", "version_policy 'specific' must list one or more versions for m"),
        ("version_policy { specific { versions: -3 } }", "version_policy 'specific' lists version -3, must be >= 0 for m"),
        (
            "model_transaction_policy { decoupled: true } response_cache { enable: true }",
            "response_cache can't be enabled for a decoupled model, which has any number of responses, for m",
        ),
        (
            "model_metrics { metric_control { histogram_options { buckets: 1 } } }",
            "model_metrics must specify 'family' in metric_identifier for m",
        ),
        (
            'model_metrics { metric_control { metric_identifier { family: "f" } } }',
            "model_metrics must specify 'buckets' in histogram_options of family 'f' for m",
        ),
    ],
)
def test_a_wrong_policy_is_refused(text, message):
    assert message == message_of(validate_policies, f'name: "m" {text}')


def adaptive_parameters(**values):
    return "".join(f'parameters {{ key: "naiad_{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items())


@pytest.mark.parametrize("value", ["", "0", "-5", "nan", "inf", "60001", "20ms"])
def test_a_latency_target_is_a_number_of_milliseconds(value):
    text = 'name: "m" backend: "identity" max_batch_size: 8 dynamic_batching { } '
    expected = (
        f"parameter 'naiad_latency_target_ms' for m is '{value}', must be a number of milliseconds above 0, 60000 at most"
    )
    assert expected in message_of(validate, text + adaptive_parameters(latency_target_ms=value), "m")


@pytest.mark.parametrize(
    ("text", "others", "message"),
    [
        ("max_batch_size: 8", {}, "needs dynamic_batching, which the model doesn't have"),
        ("dynamic_batching { }", {}, "needs a max_batch_size above 1, which is 0"),
        (
            "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }",
            {},
            "needs dynamic_batching without numbers, which has max_queue_delay_microseconds 100 and preferred_batch_size []",
        ),
        (
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4, 8 ] }",
            {},
            "needs dynamic_batching without numbers, which has max_queue_delay_microseconds 0 and preferred_batch_size [4, 8]",
        ),
        (
            "max_batch_size: 8 dynamic_batching { }",
            {"adaptive_batching": "off"},
            "contradicts 'naiad_adaptive_batching', which is off",
        ),
    ],
)
def test_a_latency_target_is_refused_where_batches_do_not_follow_it(text, others, message):
    text = f'name: "m" backend: "identity" {text} ' + adaptive_parameters(latency_target_ms=20, **others)
    assert f"parameter 'naiad_latency_target_ms' for m {message}" in message_of(validate, text, "m")


@pytest.mark.parametrize("value", ["", "yes", "ON"])
def test_adaptive_batching_is_on_or_off(value):
    expected = f"parameter 'naiad_adaptive_batching' for m is '{value}', must be on or off"
    assert expected == message_of(validate, GOOD + adaptive_parameters(adaptive_batching=value), "m")


def test_adaptive_batching_is_not_on_with_numbers():
    expected = "parameter 'naiad_adaptive_batching' for m needs dynamic_batching without numbers"
    assert expected in message_of(validate, GOOD + adaptive_parameters(adaptive_batching="on"), "m")


@pytest.mark.parametrize("value", ["", "no", "OFF"])
def test_early_refusal_is_on_or_off(value):
    text = GOOD + f'parameters {{ key: "naiad_early_refusal" value {{ string_value: "{value}" }} }}'
    expected = f"parameter 'naiad_early_refusal' for m is '{value}', must be on or off"
    assert expected == message_of(validate, text, "m")


def test_early_refusal_cannot_be_asked_of_a_model_without_the_dynamic_batcher():
    text = 'name: "m" backend: "identity" parameters { key: "naiad_early_refusal" value { string_value: "on" } }'
    assert "parameter 'naiad_early_refusal' for m is 'on', which needs dynamic_batching" in message_of(validate, text, "m")

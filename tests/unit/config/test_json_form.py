"""The JSON form of a config: which members are there, how values look, and that reading it is strict."""

import json

import pytest

from naiad.config.json_form import from_json, to_json
from naiad.config.pbtxt import parse_config
from naiad.errors import Code, InferenceServerError

PLAIN_KEYS = {
    "name", "platform", "backend", "runtime", "max_batch_size", "input", "output", "batch_input", "batch_output",
    "instance_group", "default_model_filename", "cc_model_filenames", "metric_tags", "parameters", "model_warmup",
}  # fmt: skip


def error_of(source):
    with pytest.raises(InferenceServerError) as caught:
        from_json(source)
    assert Code.INVALID_ARGUMENT is caught.value.code
    return caught.value.message


def test_an_empty_config_shows_every_plain_field_list_and_map_and_no_block():
    shown = to_json(parse_config("", "f"))
    assert set(shown) == PLAIN_KEYS
    assert (shown["max_batch_size"], shown["input"], shown["parameters"], shown["name"]) == (0, [], {}, "")


def test_a_block_is_shown_when_set_with_its_own_defaults():
    shown = to_json(parse_config("dynamic_batching { }", "f"))
    assert shown["dynamic_batching"] == {
        "preferred_batch_size": [],
        "max_queue_delay_microseconds": 0,
        "preserve_ordering": False,
        "priority_levels": 0,
        "default_priority_level": 0,
        "priority_queue_policy": {},
    }


def test_64_bit_integers_are_numbers():
    shown = to_json(
        parse_config("dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 } input { dims: -1 }", "f")
    )
    assert shown["dynamic_batching"]["max_queue_delay_microseconds"] == 2**64 - 1
    assert shown["input"][0]["dims"] == [-1]


def test_enums_are_names():
    (tensor,) = to_json(parse_config("input { data_type: TYPE_STRING }", "f"))["input"]
    assert (tensor["data_type"], tensor["format"]) == ("TYPE_STRING", "FORMAT_NONE")


def test_a_plain_member_of_a_oneof_is_shown_only_when_set_even_to_its_default():
    shown = to_json(parse_config('model_warmup { inputs { key: "x" value { zero_data: false } } }', "f"))
    assert shown["model_warmup"][0]["inputs"]["x"] == {"data_type": "TYPE_INVALID", "dims": [], "zero_data": False}


def test_map_keys_are_texts():
    shown = to_json(parse_config("dynamic_batching { priority_queue_policy { key: 10 value { } } }", "f"))
    assert list(shown["dynamic_batching"]["priority_queue_policy"]) == ["10"]


def test_an_empty_block_and_an_empty_reshape_come_back():
    config = parse_config("output { reshape { shape: [ ] } } version_policy { all { } }", "f")
    again = from_json(to_json(config))
    assert again.output[0].HasField("reshape")
    assert again.version_policy.WhichOneof("policy_choice") == "all"


def test_other_spellings_of_the_same_values_are_read():
    config = from_json(
        '{"maxBatchSize": "8", "input": [{"name": "x", "data_type": "type_fp32", "dims": ["-1", 2.0]}], "platform": null,'
        ' "output": [{"data_type": 11}], "sequence_batching": {"direct": {"minimum_slot_utilization": 1}}}'
    )
    assert config.max_batch_size == 8
    assert list(config.input[0].dims) == [-1, 2]
    assert config.input[0].data_type == config.output[0].data_type == 11
    assert config.sequence_batching.direct.minimum_slot_utilization == 1.0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"max_batchsize": 1}, "unknown field 'max_batchsize' in ModelConfig; did you mean 'max_batch_size'?"),
        ({"input": [{"nam": "x"}]}, "unknown field 'nam' in ModelInput; did you mean 'name'?"),
        ({"input": [{"nam": "x"}]}, "at 'input[0]'"),
        ({"max_batch_size": "x"}, "field 'max_batch_size' is \"x\", must be a whole number from -2147483648 to 2147483647"),
        ({"max_batch_size": True}, "field 'max_batch_size' is true, must be a whole number"),
        ({"max_batch_size": 1.5}, "field 'max_batch_size' is 1.5, must be a whole number"),
        ({"max_batch_size": 2**31}, "field 'max_batch_size' is 2147483648, must be a whole number"),
        ({"max_batch_size": float("nan")}, "field 'max_batch_size' is NaN, must be a whole number"),
        ({"max_batch_size": [1]}, "field 'max_batch_size' is a list, must be a whole number"),
        ({"input": [{"dims": [1, None]}]}, "field 'input[0].dims[1]' is null, must be a whole number"),
        ({"input": [{"dims": [9223372036854775808]}]}, "field 'input[0].dims[0]' is 9223372036854775808, must be a whole"),
        ({"input": {"name": "x"}}, "field 'input' is an object, must be a list"),
        ({"input": ["x"]}, "field 'input[0]' is \"x\", must be an object"),
        ({"parameters": []}, "field 'parameters' is a list, must be an object"),
        ({"parameters": {"k": "v"}}, "field 'parameters['k']' is \"v\", must be an object"),
        ({"parameters": {"k": {"string_value": 1}}}, "field 'parameters['k'].string_value' is 1, must be a text in quotes"),
        ({"metric_tags": {"k": 1}}, "field 'metric_tags['k']' is 1, must be a text in quotes"),
        ({"name": "\ud800"}, "field 'name' is \"\\ud800\", must be a text in quotes"),
        ({"response_cache": {"enable": "true"}}, "field 'response_cache.enable' is \"true\", must be true or false"),
        ({"input": [{"data_type": "FP32"}]}, "field 'input[0].data_type' is 'FP32'; did you mean 'TYPE_FP32'? (allowed: "),
        ({"input": [{"data_type": 77}]}, "field 'input[0].data_type' is '77' (allowed: TYPE_INVALID"),
        ({"input": [{"data_type": True}]}, "field 'input[0].data_type' is 'True' (allowed: TYPE_INVALID"),
        (
            {"dynamic_batching": {"priority_queue_policy": {"x": {}}}},
            "field 'dynamic_batching.priority_queue_policy key' is \"x\", must be a whole number from 0",
        ),
        (
            {"sequence_batching": {"direct": {"minimum_slot_utilization": 1e39}}},
            "field 'sequence_batching.direct.minimum_slot_utilization' is 1e+39, must be a number",
        ),
        ({"dynamic_batching": {}, "ensemble_scheduling": {}}, "field 'ensemble_scheduling' is given next to another of"),
        ({"max_batch_size": 1, "maxBatchSize": 2}, "field 'max_batch_size' is given twice"),
        ("{", "model configuration is not JSON: "),
        ("[" * 100_000, "model configuration is not JSON: "),
        (b"\xff", "model configuration is not JSON: "),
        ("[]", "model configuration must be a JSON object, got a list"),
        ('{"name": "a", "name": "b"}', "member 'name' is given twice in one object"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(source, message):
    assert message in error_of(source)


def test_all_mistakes_are_told_at_once():
    message = error_of({"nam": 1, "max_batch_size": "x", "input": [{"dims": 3}]})
    assert all(part in message for part in ("'nam'", "'max_batch_size'", "'input[0].dims'"))


def test_the_source_is_named():
    with pytest.raises(InferenceServerError, match=r"^load parameter 'config': unknown field 'x'"):
        from_json({"x": 1}, "load parameter 'config'")


def test_bytes_with_a_byte_order_mark_are_read():
    assert from_json(b"\xef\xbb\xbf" + json.dumps({"name": "m"}).encode()).name == "m"

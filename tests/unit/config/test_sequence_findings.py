"""Every rule of the sequence batcher's settings with its message; settings that keep them all pass."""

import pytest

from naiad.config.pbtxt import parse_config
from naiad.config.validate.sequences import sequence_findings

KINDS = "int32_false_true, fp32_false_true, bool_false_true"
START = "kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ]"


def texts(settings, more=""):
    config = parse_config(f'name: "m" max_batch_size: 8 sequence_batching {{ {settings} }} {more}', "f")
    return [finding.text for finding in sequence_findings(config)]


def control(text, name="c"):
    return f'control_input {{ name: "{name}" control {{ {text} }} }} '


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("oldest { preferred_batch_size: 0 }", "preferred size must be positive, got 0"),
        ("oldest { preferred_batch_size: 9 }", "preferred size must be <= max batch size, got 9 with max_batch_size 8"),
        ("direct { minimum_slot_utilization: 1.5 }", "minimum_slot_utilization must be in range [0, 1], got 1.5"),
        ("direct { minimum_slot_utilization: -1 }", "minimum_slot_utilization must be in range [0, 1], got -1"),
        (control(START, ""), "control tensor must specify 'name'"),
        (
            control(START) + control("kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ]"),
            "control tensor 'c' is given twice",
        ),
        ('control_input { name: "c" }', "control tensor 'c' must specify 'control'"),
        (
            control(START) + control(START, "d"),
            "specifies CONTROL_SEQUENCE_START more than once, here by control tensor 'd'",
        ),
        *(
            (
                control(f"kind: CONTROL_SEQUENCE_{kind}"),
                f"control tensor 'c', CONTROL_SEQUENCE_{kind}: must specify exactly one of {KINDS}, got none",
            )
            for kind in ("START", "END", "READY")
        ),
        (
            control(START + " fp32_false_true: [ 0, 1 ]"),
            (
                f"control tensor 'c', CONTROL_SEQUENCE_START: must specify exactly one of {KINDS}, "
                "got int32_false_true and fp32_false_true"
            ),
        ),
        (
            control("kind: CONTROL_SEQUENCE_READY bool_false_true: [ true ]"),
            (
                "control tensor 'c', CONTROL_SEQUENCE_READY: bool_false_true must have exactly 2 entries, "
                "for false and for true, got 1"
            ),
        ),
        (
            control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 int32_false_true: [ 0, 1 ]"),
            "control tensor 'c', CONTROL_SEQUENCE_CORRID: must not specify int32_false_true",
        ),
        (
            control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
            (
                "control tensor 'c', CONTROL_SEQUENCE_CORRID: data_type is TYPE_FP32, allowed: TYPE_UINT64, TYPE_INT64, "
                "TYPE_UINT32, TYPE_INT32, TYPE_STRING"
            ),
        ),
        ('state { output_name: "o" data_type: TYPE_FP32 dims: 1 }', "state must specify 'input_name'"),
        ('state { input_name: "i" data_type: TYPE_FP32 dims: 1 }', "state must specify 'output_name'"),
        ('state { input_name: "i" output_name: "o" dims: 1 }', "state 'i' must specify 'data_type'"),
        ('state { input_name: "i" output_name: "o" data_type: TYPE_FP32 }', "state 'i' must specify 'dims'"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message):
    assert texts(settings) == [f"sequence batching {message} for m"]


def test_the_response_cache_is_refused():
    expected = "sequence batching excludes response_cache.enable: an answer depends on the requests before it for m"
    assert texts("", "response_cache { enable: true }") == [expected]


def test_right_settings_pass():
    everything = (
        control(START)
        + control("kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ]", "e")
        + control("kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ]", "r")
        + control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING", "i")
        + 'oldest { preferred_batch_size: 8 } state { input_name: "i" output_name: "o" data_type: TYPE_FP32 dims: -1 }'
    )
    assert texts(everything) == []


def test_another_scheduler_has_no_mistake_here():
    assert list(sequence_findings(parse_config('name: "m" response_cache { enable: true }', "f"))) == []

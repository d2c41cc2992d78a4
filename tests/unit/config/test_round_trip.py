"""Any ModelConfig survives being written as config.pbtxt and as JSON; neither form loses or invents a value."""

import json

import numpy as np
from config_messages import FLOATS, configs
from hypothesis import given, settings

from naiad.config import json_form, pbtxt
from naiad.proto import message_class


@given(configs())
@settings(max_examples=150, deadline=None)
def test_pbtxt_reads_back_what_it_wrote(config):
    assert config == pbtxt.parse_config(pbtxt.write_config(config), "f")


@given(configs())
@settings(max_examples=150, deadline=None)
def test_json_reads_back_what_it_showed(config):
    shown = json_form.to_json(config)
    assert config == json_form.from_json(shown)
    assert config == json_form.from_json(json.dumps(shown))


@given(configs())
@settings(max_examples=100, deadline=None)
def test_json_through_pbtxt_is_the_same_member_by_member(config):
    """A served config, exported as config.pbtxt and loaded again, shows the same."""
    exported = pbtxt.parse_config(pbtxt.write_config(config), "f")
    assert json_form.to_json(config) == json_form.to_json(exported)


@given(FLOATS.filter(np.isfinite))
def test_a_32_bit_float_is_shown_as_the_shortest_number_that_reads_back(value):
    config = message_class("inference.ModelConfig")()
    config.sequence_batching.direct.minimum_slot_utilization = value
    shown = json_form.to_json(config)["sequence_batching"]["direct"]["minimum_slot_utilization"]
    assert np.float32(shown) == np.float32(value)
    assert len(repr(shown)) <= len(repr(float(np.float32(value))))

"""Any ModelConfig survives being written as config.pbtxt and as JSON; neither form loses or invents a value."""

import json

import numpy as np
from google.protobuf.descriptor import FieldDescriptor as Field
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.config import json_form, pbtxt, schema
from naiad.proto import message_class

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
FLOATS = st.floats(width=32, allow_nan=False)


def plain(field):
    """Values of one plain field."""
    limits = schema.integer_range(field)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if limits:
        return st.integers(*limits) | st.sampled_from(limits)
    return {
        Field.TYPE_BOOL: st.booleans(),
        Field.TYPE_STRING: TEXTS,
        Field.TYPE_FLOAT: FLOATS,
        Field.TYPE_DOUBLE: st.floats(allow_nan=False),
    }[field.type]


def fill(draw, message, depth=0):
    """Set some of the fields of a message, and of those in it."""
    fields = list(message.DESCRIPTOR.fields)
    chosen = (
        draw(st.lists(st.sampled_from(fields), max_size=6 if depth == 0 else 3, unique_by=lambda field: field.name))
        if fields
        else []
    )
    for field in chosen:
        target = getattr(message, field.name)
        count = draw(st.integers(0, 2))
        if schema.is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            for _ in range(count):
                if value.message_type is not None:
                    fill(draw, target[draw(plain(key))], depth + 1)
                else:
                    target[draw(plain(key))] = draw(plain(value))
        elif schema.is_repeated(field):
            for _ in range(count):
                if field.message_type is not None:
                    fill(draw, target.add(), depth + 1)
                else:
                    target.append(draw(plain(field)))
        elif field.message_type is not None:
            target.SetInParent()
            fill(draw, target, depth + 1)
        else:
            setattr(message, field.name, draw(plain(field)))


@st.composite
def configs(draw):
    config = message_class("inference.ModelConfig")()
    fill(draw, config)
    return config


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

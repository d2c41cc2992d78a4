"""The places of values in a config.pbtxt: our reader finds exactly the fields that protobuf's finds, where they stand."""

import pytest
from config_messages import configs
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.config import schema
from naiad.config.pbtxt import parse_config
from naiad.config.positions import Position, field_positions, nearest
from naiad.errors import InferenceServerError

STYLES = [
    {},
    {"as_one_line": True},
    {"pointy_brackets": True},
    {"use_short_repeated_primitives": True},
    {"use_short_repeated_primitives": True, "as_one_line": True, "pointy_brackets": True},
]


def paths_of(message, prefix=()):
    """The path of each value and block that is set in a message."""
    found = set()
    for field, value in message.ListFields():
        if schema.is_map(field):
            items = [((*prefix, field.name, key), value[key]) for key in value]
            of_value = field.message_type.fields_by_name["value"]
        elif schema.is_repeated(field):
            items, of_value = [((*prefix, field.name, index), item) for index, item in enumerate(value)], field
        else:
            items, of_value = [((*prefix, field.name), value)], field
        for path, item in items:
            found.add(path)
            if of_value.message_type is not None:
                found |= paths_of(item, path)
    return found


@given(configs(), st.sampled_from(STYLES))
@settings(max_examples=200, deadline=None)
def test_the_fields_found_are_those_that_protobuf_reads(config, style):
    text = text_format.MessageToString(config, as_utf8=True, **style)
    assert paths_of(parse_config(text, "f")) == set(field_positions(text))


@given(configs(), st.sampled_from(["# { [ \" ' }\n", " \n", "\t"]))
@settings(max_examples=100, deadline=None)
def test_comments_and_space_between_fields_change_no_field(config, filler):
    text = "".join(f"{line}\n{filler}" for line in text_format.MessageToString(config, as_utf8=True).split("\n"))
    assert paths_of(parse_config(text, "f")) == set(field_positions(text))


PIECES = [
    *(
        'name: "a"',
        "name:'a' # x\n'b'",
        "max_batch_size:4",
        "max_batch_size: - 4",
        "max_batch_size: -4",
        "input{",
        "input [",
        "{",
    ),
    *("input: <", "}", ">", "]", "[", ",", ";", " ", "\n", "#", "dims: 1", "dims: [", "1", "0x1F", "017", "dims:1,", "]"),
    *("parameters {", "key: 'k'", "value {", "value: <", "string_value: 'v'", "data_type: 11", "data_type: TYPE_FP32", "[]"),
    *("version_policy { latest { } }", "optional: t", "response_cache: { enable: True }", "reshape { shape: [ ] }"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
@settings(max_examples=600, deadline=None)
def test_whatever_protobuf_accepts_can_be_located(text):
    try:
        config = parse_config(text, "f")
    except InferenceServerError:
        return
    assert paths_of(config) <= set(field_positions(text))


FORMS = """# a comment: name: "x"
name: 'a' "b";
max_batch_size: 8,
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1, -1 ] }, < name: "y" dims: 2 dims: 3 > ]
input: { name: "z" # the last
}
parameters: { value: { string_value: "v" } key: "k\\x41" }
parameters [ { key: 'two' value < > } ]
metric_tags { key: "t" value: "u" }
dynamic_batching { priority_queue_policy { key: 0x2 value { max_queue_size: 1 } } }
output [ ]
"""


@pytest.mark.parametrize(
    ("path", "position", "token"),
    [
        (("name",), Position(2, 7), "'a'"),
        (("max_batch_size",), Position(3, 17), "8"),
        (("input", 0), Position(4, 9), "{"),
        (("input", 0, "dims", 1), Position(4, 53), "-1"),
        (("input", 1), Position(4, 61), "<"),
        (("input", 1, "dims", 1), Position(4, 87), "3"),
        (("input", 2), Position(5, 1), "input"),
        (("parameters", "kA"), Position(7, 1), "parameters"),
        (("parameters", "kA", "string_value"), Position(7, 38), '"v"'),
        (("parameters", "two"), Position(8, 14), "{"),
        (("metric_tags", "t"), Position(9, 31), '"u"'),
        (("dynamic_batching", "priority_queue_policy", 2, "max_queue_size"), Position(10, 77), "1"),
    ],
)
def test_each_form_of_the_format_has_its_place(path, position, token):
    positions = field_positions(FORMS)
    assert positions[path] == position
    assert FORMS.splitlines()[position.line - 1][position.column - 1 :].startswith(token)
    assert set(positions) >= paths_of(parse_config(FORMS, "f"))


def test_a_field_that_is_not_in_the_file_stands_where_its_block_does():
    positions = field_positions(FORMS)
    assert nearest(positions, ("input", 1, "data_type")) == positions["input", 1]
    assert nearest(positions, ("version_policy", "specific")) is None

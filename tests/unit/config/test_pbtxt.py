"""config.pbtxt: what is read, and that every error names place, field, what is allowed and the nearest known name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.pbtxt import parse_config, read_config, write_config
from naiad.errors import Code, InferenceServerError


def error_of(text):
    with pytest.raises(InferenceServerError) as caught:
        parse_config(text, "m/config.pbtxt")
    assert Code.INVALID_ARGUMENT is caught.value.code
    return caught.value.message


def test_comments_lists_separators_quotes_and_concatenation_are_read():
    config = parse_config(
        """
        # a comment
        name: 'a' "b";
        max_batch_size: 8,
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 1, -1 ] }, < name: "y" > ]
        parameters: { key: "k" value: { string_value: "v" } }
        response_cache { enable: 1 }
        """,
        "f",
    )
    assert config.name == "ab"
    assert config.max_batch_size == 8
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [("x", [1, -1]), ("y", [])]
    assert config.parameters["k"].string_value == "v"
    assert config.response_cache.enable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\n max_batchsize: 4",
            "m/config.pbtxt:2:2: unknown field 'max_batchsize' in ModelConfig; did you mean 'max_batch_size'?",
        ),
        (
            "input { data_typ: TYPE_FP32 }",
            "m/config.pbtxt:1:9: unknown field 'data_typ' in ModelInput; did you mean 'data_type'?",
        ),
        ("zzz: 4", "m/config.pbtxt:1:1: unknown field 'zzz' in ModelConfig (known: name, platform, backend,"),
        (
            "input { data_type: TYPE_FP33 }",
            "m/config.pbtxt:1:20: field 'input.data_type' is 'TYPE_FP33'; did you mean 'TYPE_FP32'? (allowed: TYPE_INVALID, ",
        ),
        (
            "input { data_type: FP32 }",
            "m/config.pbtxt:1:20: field 'input.data_type' is 'FP32'; did you mean 'TYPE_FP32'? (allowed: ",
        ),
        (
            'max_batch_size: "4"',
            "m/config.pbtxt:1:17: field 'max_batch_size' is \"4\", must be a whole number from -2147483648 to 2147483647",
        ),
        (
            "max_batch_size: 99999999999",
            "m/config.pbtxt:1:17: field 'max_batch_size' is 99999999999, must be a whole number from -2147483648 to 2147483647",
        ),
        (
            "version_policy { latest { num_versions: -1 } }",
            "m/config.pbtxt:1:41: field 'version_policy.latest.num_versions' is -1, must be a whole number from 0 to 42949",
        ),
        (
            'input [ { name: "x" }, { dims: [ 1.5 ] } ]',
            "m/config.pbtxt:1:34: field 'input.dims' is 1.5, must be a whole number from -9223372036854775808 to ",
        ),
        ("name: m", "m/config.pbtxt:1:7: field 'name' is m, must be a text in quotes"),
        ('name: "m', "m/config.pbtxt:1:7: field 'name' is \"m, must be a text in quotes"),
        ('name: "\\377"', "m/config.pbtxt:1:13: field 'name' ends here and is not UTF-8 text"),
        ("response_cache { enable: yes }", "m/config.pbtxt:1:26: field 'response_cache.enable' is yes, must be true or false"),
        ("max_batch_size:", "m/config.pbtxt:1:16: field 'max_batch_size' is the end of the file, must be a whole number from"),
        ("input: 3", "m/config.pbtxt:1:8: field 'input' is 3, must be a block with name, data_type, format, dims,"),
        ('name: "a" name: "b"', "m/config.pbtxt:1:17: field 'name' is given twice, it may be given once"),
        (
            "dynamic_batching { } sequence_batching { }",
            "m/config.pbtxt:1:22: fields 'dynamic_batching' and 'sequence_batching' exclude each other, give one of them",
        ),
        ("input { dims: [1, 2 }", "m/config.pbtxt:1:21: syntax error at }: Expected \",\". (in field 'input.dims')"),
        ("}", "m/config.pbtxt:1:1: syntax error at }: Expected identifier or number, got }."),
        (
            "input { data_type: 77 }",
            "m/config.pbtxt:1:20: field 'input.data_type' is '77' (allowed: TYPE_INVALID, ",
        ),
        (
            "dynamic_batching { priority_queue_policy { key: 1 value { timeout_action: 9 } } }",
            "m/config.pbtxt:1:75: field 'dynamic_batching.priority_queue_policy.timeout_action' is '9' (allowed: REJECT, ",
        ),
    ],
)
def test_an_error_names_place_field_and_what_is_allowed(text, message):
    assert error_of(text).startswith(message)


UNKNOWN = [
    "max_batchsize: 3",
    "input { nam: 'x' dims: 1 }",
    "shapes { a: 1 b { c: [ 1, 2 ] d < e: '}' > } }",
    "input [ { name: 'y' typ: [ 'a', 'b' ] } ]",
    "note: 'a' \"b\" ;",
    "version_policy: { latest { count: -1 } }",
]


@given(st.lists(st.sampled_from(UNKNOWN), min_size=1, max_size=5, unique=True))
def test_all_unknown_fields_are_told_at_once(parts):
    names = {
        "max_batchsize": 1,
        "nam": 9,
        "shapes": 1,
        "typ": 21,
        "note": 1,
        "count": 28,
    }
    lines = error_of("\n".join(parts)).split("\n")
    found = [line for line in lines if line.startswith("m/config.pbtxt:")]
    expected = [
        f"m/config.pbtxt:{number}:{names[name]}: unknown field '{name}' in "
        for number, part in enumerate(parts, 1)
        for name in names
        if f"{name}:" in part or part.startswith(f"{name} ")
    ]
    assert [line[: len(start)] for line, start in zip(found, expected)] == expected
    assert len(found) == len(expected)


def test_unknown_blocks_of_any_depth_are_told_as_the_first_of_them():
    assert error_of("a {" * 5000 + "}" * 5000).startswith("m/config.pbtxt:1:1: unknown field 'a' in ModelConfig")
    assert error_of("input {" * 3000).startswith("m/config.pbtxt:1:8: unknown field 'input' in ModelInput")


def test_the_first_mistake_behind_an_unknown_field_is_told_too():
    lines = error_of("max_batchsize: 3\nmax_batch_size: x").split("\n")
    assert [line.split(" field")[0] for line in lines] == [
        "2 mistakes:",
        "m/config.pbtxt:1:1: unknown",
        "m/config.pbtxt:2:17:",
    ]


def test_a_line_is_counted_in_a_file_of_several():
    assert error_of('# head\nname: "m"\n\ninput {\n  name: "x"\n  dims: [ a ]\n}').startswith(
        "m/config.pbtxt:6:11: field 'input.dims' is a,"
    )


@pytest.mark.parametrize("placeholder", ["${bs}", "$bs", "{{ bs }}", "{% if x %}", "<%= bs %>"])
def test_a_placeholder_left_in_the_file_is_called_one(placeholder):
    expected = f"m/config.pbtxt:1:17: '{placeholder}' is a template's placeholder that nobody has filled in"
    assert expected == error_of(f"max_batch_size: {placeholder}")


def test_a_placeholder_inside_a_text_is_text():
    config = parse_config('parameters { key: "k" value { string_value: "${dir}" } }', "f")
    assert config.parameters["k"].string_value == "${dir}"


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'\xef\xbb\xbfname: "m"\r\nmax_batch_size: 2\r\n')
    assert (read_config(path).name, read_config(path).max_batch_size) == ("m", 2)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InferenceServerError, match=r"nowhere/config\.pbtxt: can't be read: No such file"):
        read_config(tmp_path / "nowhere" / "config.pbtxt")


def test_a_file_that_is_not_utf8_is_named_with_the_byte(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "\xff"')
    with pytest.raises(InferenceServerError, match=r"config\.pbtxt: is not UTF-8 text: byte 7 is 0xff"):
        read_config(path)


def test_an_empty_reshape_survives_writing():
    config = parse_config('output { name: "y" dims: 1 reshape { shape: [ ] } }', "f")
    assert parse_config(write_config(config), "f").output[0].HasField("reshape")


WORDS = ["name", "input", "dims", "data_type", "parameters", "key", "value", "string_value", "TYPE_FP32", "version_policy"]
PIECES = st.sampled_from(
    [*WORDS, ":", "{", "}", "[", "]", "<", ">", ",", ";", '"', "'", "#", "\n", " ", "1", "-1", "1.5", "$", "\\", "é"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_is_read_or_refused_with_its_place(text):
    refusal = None
    try:
        config = parse_config(text, "f")
    except InferenceServerError as error:
        refusal = error.message
    if refusal is None:
        assert config == parse_config(write_config(config), "f")
    else:
        places = [line for line in refusal.split("\n") if line.startswith("f:")]
        assert places
        assert refusal == places[0] if len(places) == 1 else refusal.startswith(f"{len(places)} mistakes:\nf:")

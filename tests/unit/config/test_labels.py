"""Label files: what is part of a label, and which files may be read."""

import pytest

from naiad.config.compile.labels import read_labels
from naiad.errors import Code, InferenceServerError


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"a\nb\n", ("a", "b")),
        (b"a\nb", ("a", "b")),
        (b"a\r\nb\r\n", ("a", "b")),
        (b"\xef\xbb\xbfa\nb\n", ("a", "b")),
        (b"a:b\nc\n", ("a:b", "c")),
        (b"a\n\nb\n\n", ("a", "", "b", "")),
        ("a\u2028b\x0bc\n".encode(), ("a\u2028b\x0bc",)),
        (b" a \n", (" a ",)),
        (b"", ()),
    ],
)
def test_each_line_is_a_label(content, labels, tmp_path):
    (tmp_path / "labels.txt").write_bytes(content)
    assert labels == read_labels(tmp_path, "labels.txt", "y")


def test_a_file_in_a_folder_below_is_read(tmp_path):
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "labels.txt").write_text("a\n")
    assert read_labels(tmp_path, "l/labels.txt", "y") == ("a",)


def error_of(directory, name):
    with pytest.raises(InferenceServerError) as caught:
        read_labels(directory, name, "y")
    assert Code.INVALID_ARGUMENT is caught.value.code
    return caught.value.message


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/..", "/etc/passwd", "a\0b"])
def test_a_path_that_leaves_the_models_folder_is_refused(name, tmp_path):
    model = tmp_path / "m"
    model.mkdir()
    (tmp_path / "x").write_text("secret")
    expected = f"label_filename '{name}' of output 'y' must be a path inside the model's folder {model}, without '..'"
    assert expected == error_of(model, name)


def test_a_missing_file_is_named(tmp_path):
    expected = f"label_filename 'no.txt' of output 'y': {tmp_path / 'no.txt'}: can't be read: No such file or directory"
    assert expected == error_of(tmp_path, "no.txt")


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "l.txt").write_bytes(b"a\n\xff")
    assert error_of(tmp_path, "l.txt").startswith("label_filename 'l.txt' of output 'y' is not UTF-8 text: byte 2 of ")

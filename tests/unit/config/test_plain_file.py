"""Only plain files of bounded size are read; nothing that lies in their place makes the reader wait."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from naiad.config import pbtxt
from naiad.config.plain_file import check_plain_or_folder, read_plain_file
from naiad.errors import InferenceServerError


def fifo(path: Path) -> str:
    os.mkfifo(path)
    return "is a FIFO, must be a plain file"


def folder(path: Path) -> str:
    path.mkdir()
    return "is a folder, must be a plain file"


def endless(path: Path) -> str:
    path.symlink_to("/dev/zero")
    return "is a device, must be a plain file"


def circle(path: Path) -> str:
    path.symlink_to(path)
    return "can't be read: Too many levels of symbolic links"


def dangling(path: Path) -> str:
    path.symlink_to("nowhere")
    return "can't be read: No such file or directory"


def memory(path: Path) -> str:
    path.symlink_to("/proc/self/mem")
    return "can't be read: Input/output error"


def endless_and_empty(path: Path) -> str:
    """A file of the system that says it has no bytes."""
    path.symlink_to("/proc/self/environ" if len(Path("/proc/self/environ").read_bytes()) > 10 else "/proc/cpuinfo")
    return "has more bytes than it says, at most 10 are read"


def too_large(path: Path) -> str:
    path.write_bytes(b"x" * 11)
    return "has 11 bytes, at most 10 are read"


@pytest.mark.parametrize("put", [fifo, folder, endless, circle, dangling, memory, endless_and_empty, too_large])
def test_what_is_no_plain_file_is_refused_at_once_with_its_path(tmp_path, put):
    path = tmp_path / "config.pbtxt"
    expected = put(path)
    with pytest.raises(InferenceServerError) as caught:
        read_plain_file(path, 10)
    assert caught.value.message == f"{path}: {expected}"


def test_a_plain_file_and_a_link_to_one_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    assert read_plain_file(tmp_path / "link", 10) == b"0123456789"


def test_a_name_that_is_too_long_or_has_a_zero_byte_is_refused(tmp_path):
    with pytest.raises(InferenceServerError, match="can't be read: File name too long"):
        read_plain_file(tmp_path / ("x" * 300), 10)
    with pytest.raises(InferenceServerError, match=r"can't be read: .*embedded null "):
        read_plain_file(tmp_path / "x\0y", 10)


@pytest.mark.parametrize("put", [fifo, endless, circle])
def test_a_model_file_that_nobody_could_read_is_refused(tmp_path, put):
    expected = put(tmp_path / "model.onnx")
    with pytest.raises(InferenceServerError) as caught:
        check_plain_or_folder(tmp_path / "model.onnx")
    assert caught.value.message == f"{tmp_path / 'model.onnx'}: {expected}"


def test_a_socket_is_no_model_file(tmp_path):
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(tmp_path / "s"))
        with pytest.raises(InferenceServerError, match="is a socket, must be a plain file"):
            check_plain_or_folder(tmp_path / "s")


def test_what_is_not_there_and_a_folder_are_left_to_whoever_needs_a_file(tmp_path):
    check_plain_or_folder(tmp_path)
    check_plain_or_folder(tmp_path / "nothing")


def test_a_huge_config_is_refused_by_its_size_without_being_read(tmp_path):
    path = tmp_path / "config.pbtxt"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(InferenceServerError, match=r"config.pbtxt: has 104857600 bytes, at most 4194304 are read"):
        pbtxt.read_config(path)


@pytest.mark.parametrize("text", ["x {" * 50_000, "input {" * 50_000, "parameters { value {" * 20_000, "[" * 100_000])
def test_deep_nesting_is_a_mistake_in_the_file_and_no_fault(tmp_path, text):
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    with pytest.raises(InferenceServerError, match=r"config.pbtxt:1:"):
        pbtxt.read_config(path)

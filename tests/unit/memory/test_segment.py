"""Segments have no name, can't be cut by a peer, and are refused when they could be."""

import fcntl
import os
import socket
import sys
from pathlib import Path

import pytest
from memory_peer import memory_peer

from naiad.memory.segment import create_segment, map_segment

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has seals")


@pytest.fixture
def segment():
    fd = create_segment(8192)
    yield fd
    os.close(fd)


def test_a_new_segment_is_all_zero_and_shared_between_mappings(segment):
    first = map_segment(segment, 8192, must_be_sealed=True)
    second = map_segment(segment, 8192, must_be_sealed=True)
    assert bytes(8192) == bytes(first)
    first[100] = 7
    assert (second[100], second.format, second.nbytes) == (7, "B", 8192)


def test_a_segment_is_not_inherited(segment):
    assert not os.get_inheritable(segment)
    assert fcntl.fcntl(segment, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


@pytest.mark.parametrize("size", [0, -1])
def test_a_segment_without_bytes_is_refused(size):
    with pytest.raises(ValueError, match="1 byte at least"):
        create_segment(size)


@on_linux
@pytest.mark.parametrize("size", [0, 4096, 1 << 20])
def test_another_process_can_change_no_segments_size(segment, size):
    with memory_peer() as peer:
        assert peer.resize(segment, size) == "PermissionError"
    assert os.fstat(segment).st_size == 8192


@on_linux
def test_a_segment_that_its_maker_can_cut_is_refused():
    fd = os.memfd_create("unsealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 4096)
        with pytest.raises(ValueError, match="isn't sealed"):
            map_segment(fd, 4096, must_be_sealed=True)
        assert len(map_segment(fd, 4096, must_be_sealed=False)) == 4096
    finally:
        os.close(fd)


@on_linux
def test_a_file_on_disk_is_no_segment(tmp_path):
    with (tmp_path / "file").open("w+b") as file:
        file.truncate(4096)
        with pytest.raises(ValueError, match="sealed"):
            map_segment(file.fileno(), 4096, must_be_sealed=True)


@pytest.mark.parametrize("size", [8193, 1 << 40, 0, -1])
def test_a_segment_that_does_not_hold_what_was_said_is_refused(segment, size):
    with pytest.raises(ValueError, match=f"said to have {size} bytes holds 8192"):
        map_segment(segment, size, must_be_sealed=True)


def test_what_is_no_memory_is_refused():
    near, far = socket.socketpair()
    with near, far, pytest.raises(ValueError, match="isn't one of shared memory"):
        map_segment(near.fileno(), 1, must_be_sealed=True)


def test_the_beginning_of_a_segment_can_be_mapped(segment):
    assert len(map_segment(segment, 100, must_be_sealed=True)) == 100


@on_linux
def test_a_python_built_against_an_old_c_library_makes_segments_too(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    fd = create_segment(4096)
    try:
        assert len(map_segment(fd, 4096, must_be_sealed=True)) == 4096
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


def test_where_there_are_no_memory_files_the_name_is_gone_at_once(monkeypatch):
    monkeypatch.setattr("naiad.memory.segment._IS_LINUX", False)
    before = named()
    fd = create_segment(4096)
    try:
        assert named() == before
        assert not os.get_inheritable(fd)
        memory = map_segment(fd, 4096, must_be_sealed=True)
        memory[:2] = b"ab"
        assert bytes(map_segment(fd, 4096, must_be_sealed=True)[:3]) == b"ab\0"
    finally:
        os.close(fd)


@on_linux
def test_a_segment_leaves_nothing_in_the_file_system(segment):
    assert str(Path(f"/proc/self/fd/{segment}").readlink()) == "/memfd:naiad (deleted)"


def named() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir() if "naiad" in path.name} if folder.exists() else set()

"""Regions: what may be registered, what may be read and written, and who closes them."""

from __future__ import annotations

import mmap
import os
import sys

import psutil
import pytest
from posix_object import PosixObject

from naiad.errors import Code, InferenceServerError
from naiad.memory.client_regions.region import LARGE_BYTES, Region
from naiad.memory.client_regions.registry import RegionRegistry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects are made in /dev/shm")

PAGE = mmap.ALLOCATIONGRANULARITY


@pytest.fixture
def memory():
    with PosixObject(2 * PAGE) as made:
        yield made


@pytest.fixture
def large():
    with PosixObject(4 * LARGE_BYTES) as made:
        yield made


@pytest.fixture
def registry():
    made = RegionRegistry(most_regions=3)
    yield made
    made.unregister_all()


def refusal(act, code: Code = Code.INVALID_ARGUMENT) -> str:
    with pytest.raises(InferenceServerError) as caught:
        act()
    assert caught.value.code is code
    return caught.value.message


def open_objects() -> int:
    """Return how many descriptors and mappings of test objects this process has."""
    files = [entry.path for entry in psutil.Process().open_files() if "naiad-test" in entry.path]
    maps = [entry.path for entry in psutil.Process().memory_maps(grouped=False) if "naiad-test" in entry.path]
    return len(files) + len(maps)


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_leading_slashes_of_a_key_mean_nothing(registry, memory, slashes):
    registry.register("r", slashes + memory.key.lstrip("/"), 0, 8)
    assert registry.find("r").read(0, 8) == bytes(8)


@pytest.mark.parametrize("key", ["", "/", "///", "..", "/..", ".", "a/b", "../shm/x", "/../../etc/passwd", "a\0b", "x" * 256])
def test_a_key_that_no_object_can_have_is_refused_before_anything_is_opened(registry, key):
    text = refusal(lambda: registry.register("r", key, 0, 8))
    assert text.startswith("shared memory key ")
    assert registry.all() == []


@pytest.mark.parametrize("slashes", ["", "/", "///"])
def test_memory_of_triton_and_its_models_is_refused(registry, slashes):
    text = refusal(lambda: registry.register("r", slashes + "triton_python_backend_shm_region_1", 0, 8))
    assert "reserved" in text


def test_an_object_that_is_not_there_can_not_be_opened(registry):
    text = refusal(lambda: registry.register("r", "/naiad-test-nobody", 0, 8), Code.INTERNAL)
    assert text.startswith("Unable to open shared memory region: '/naiad-test-nobody'")


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")], ids=["fifo", "dir", "link"]
)
def test_what_is_no_shared_memory_is_not_opened(registry, memory, make):
    memory.path.unlink()
    make(memory.path)
    try:
        assert "Unable to open" in refusal(lambda: registry.register("r", memory.key, 0, 8), Code.INTERNAL)
    finally:
        (memory.path.rmdir if memory.path.is_dir() else memory.path.unlink)()


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 0), (0, 2 * PAGE + 1), (PAGE, PAGE + 1), (2 * PAGE, 1), (0, 2**64 - 1), ((2**64 // PAGE - 1) * PAGE, 1)],
)
def test_what_does_not_lie_in_the_object_is_refused(registry, memory, offset, size):
    text = refusal(lambda: registry.register("r", memory.key, offset, size))
    assert text.startswith("failed to register shared memory region 'r': invalid args")
    assert open_objects() == 0


@pytest.mark.parametrize("offset", [1, 8, PAGE - 1, PAGE + 1])
def test_an_offset_must_be_on_a_page(registry, memory, offset):
    assert f"must be a multiple of {PAGE}" in refusal(lambda: registry.register("r", memory.key, offset, 8))


def test_a_name_is_registered_once_and_again_after_it_was_unregistered(registry, memory):
    registry.register("r", memory.key, 0, 8)
    text = refusal(lambda: registry.register("r", memory.key, 0, 8), Code.ALREADY_EXISTS)
    assert text == "shared memory region 'r' already in manager"
    registry.unregister("r")
    registry.register("r", memory.key, PAGE, 16)
    assert [(at.name, at.key, at.offset, at.size_bytes) for at in registry.all()] == [("r", memory.key, PAGE, 16)]


def test_a_name_must_not_be_empty(registry, memory):
    refusal(lambda: registry.register("", memory.key, 0, 8))


def test_an_unknown_name_is_unregistered_without_a_word_and_not_found(registry):
    registry.unregister("nobody")
    assert refusal(lambda: registry.find("nobody"), Code.NOT_FOUND) == "Unable to find shared memory region: 'nobody'"


def test_the_number_of_regions_is_bounded(registry, memory):
    for index in range(3):
        registry.register(str(index), memory.key, 0, 8)
    assert "unregister some" in refusal(lambda: registry.register("3", memory.key, 0, 8), Code.UNAVAILABLE)
    registry.unregister("0")
    registry.register("3", memory.key, 0, 8)


def test_reading_and_writing_begin_at_the_regions_offset(memory):
    memory.write(b"abcdefgh", PAGE)
    region = Region("r", memory.key, PAGE, 16)
    assert bytes(region.read(2, 3)) == b"cde"
    region.write(4, b"WXYZ")
    assert memory.read(9, PAGE) == b"abcdWXYZ\0"
    region.release()


def test_a_view_shows_the_clients_memory_and_can_not_be_written_to(memory):
    region = Region("r", memory.key, 0, PAGE)
    with region.view(8, 4) as view:
        memory.write(b"abcd", 8)
        assert (bytes(view), view.readonly) == (b"abcd", True)
    region.release()


@pytest.mark.parametrize(
    ("offset", "size", "text"),
    [
        (16, 0, "Invalid offset for shared memory region: 'r'"),
        (2**64 - 1, 1, "Invalid offset for shared memory region: 'r'"),
        (0, 17, "Invalid offset + byte size for shared memory region: 'r'"),
        (15, 2, "Invalid offset + byte size for shared memory region: 'r'"),
        (1, 2**64 - 1, "Invalid offset + byte size for shared memory region: 'r'"),
    ],
)
def test_nothing_outside_of_a_region_is_read_or_written(memory, offset, size, text):
    region = Region("r", memory.key, 0, 16)
    assert refusal(lambda: region.read(offset, size)).startswith(text)
    if size < 100:
        assert refusal(lambda: region.write(offset, bytes(size))).startswith(text)
    assert refusal(lambda: region.view(offset, size)).startswith(text)
    region.release()


@pytest.mark.parametrize("size", [8, LARGE_BYTES + 8])
def test_an_object_that_has_shrunk_is_refused_and_can_be_used_again_when_it_has_grown(large, size):
    region = Region("r", large.key, 0, 4 * LARGE_BYTES)
    large.resize(4)
    for act in (lambda: region.read(0, size), lambda: region.view(0, size), lambda: region.write(0, bytes(size))):
        assert "has shrunk since it was registered" in refusal(act)
    assert large.path.stat().st_size == 4
    large.resize(4 * LARGE_BYTES)
    region.write(0, b"12345678")
    assert bytes(region.read(0, size))[:8] == b"12345678"
    region.release()


def test_a_region_is_closed_by_its_last_user(registry, memory):
    registry.register("r", memory.key, 0, 8)
    region = registry.find("r")
    region.hold()
    registry.unregister("r")
    assert region.users == 1
    region.write(0, b"late")
    assert memory.read(4) == b"late"
    region.release()
    assert open_objects() == 0


def test_a_large_region_is_closed_by_whoever_has_time(large):
    left = []
    region = Region("r", large.key, 0, 4 * LARGE_BYTES, left.append)
    region.release()
    assert open_objects() > 0
    left.pop()()
    assert open_objects() == 0


def test_views_outlive_their_region(large):
    large.write(b"abcd", LARGE_BYTES)
    region = Region("r", large.key, 0, 4 * LARGE_BYTES)
    view = region.view(LARGE_BYTES, 2 * LARGE_BYTES)
    region.release()
    assert bytes(view[:4]) == b"abcd"
    del view
    assert open_objects() == 0


def test_the_object_stays_the_clients(registry, memory):
    registry.register("r", memory.key, 0, 8)
    registry.unregister_all()
    assert memory.path.exists()

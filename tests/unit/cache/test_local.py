"""The cache in memory: what it finds, and that it never takes more than it may."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.cache.base import CachedResponse, copy_of
from naiad.cache.local import LocalCache
from naiad.request.response import OutputTensor
from naiad.tensor.datatype import BYTES, FP32


def response(size_bytes: int) -> CachedResponse:
    return CachedResponse((), {}, size_bytes)


def cache_of(limit_bytes: int) -> LocalCache:
    return LocalCache(limit_bytes, lambda callback: callback())


def test_the_least_recently_used_goes_first():
    cache = cache_of(30)
    for key in (b"a", b"b", b"c"):
        cache.insert(b"m", key, response(10))
    cache.lookup(b"m", b"a")
    cache.insert(b"m", b"d", response(10))
    assert [key for key in (b"a", b"b", b"c", b"d") if cache.lookup(b"m", key) is not None] == [b"a", b"c", b"d"]


def test_one_that_is_larger_than_the_cache_moves_nothing_out():
    cache = cache_of(30)
    cache.insert(b"m", b"a", response(10))
    assert not cache.accepts(31)
    cache.insert(b"m", b"b", response(31))
    assert (len(cache), cache.used_bytes) == (1, 10)


def test_what_another_load_has_stored_is_not_found_and_can_be_forgotten():
    cache = cache_of(10_000_000)
    for number in range(1200):
        cache.insert(b"old", b"%d" % number, response(10))
    cache.insert(b"new", b"1", response(7))
    cache.forget(b"old")
    cache.forget(b"old")
    assert cache.lookup(b"old", b"1") is None
    assert cache.lookup(b"new", b"1") is not None
    assert cache.used_bytes == 7


def test_forgetting_goes_in_pieces_so_that_the_loop_is_not_held():
    later = []
    cache = LocalCache(10_000_000, later.append)
    for number in range(1200):
        cache.insert(b"m", b"%d" % number, response(10))
    cache.forget(b"m")
    assert len(cache) == 700
    while later:
        later.pop()()
    assert (len(cache), cache.used_bytes) == (0, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ilf"), st.sampled_from([b"m", b"n"]), st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 40)
        )
    )
)
def test_it_never_takes_more_than_its_limit_and_finds_only_the_last_value_of_a_key(steps):
    cache, last = cache_of(60), {}
    for what, generation, key, size in steps:
        if what == "i":
            last[generation, key] = response(size)
            cache.insert(generation, key, last[generation, key])
        elif what == "l":
            found = cache.lookup(generation, key)
            assert found is None or found is last[generation, key]
        else:
            cache.forget(generation)
        entries = [cache.lookup(g, k) for g in (b"m", b"n") for k in (b"a", b"b", b"c")]
        assert cache.used_bytes == sum(entry.size_bytes for entry in entries if entry is not None) <= 60


def test_the_families_of_the_whole_cache_have_tritons_names():
    cache = cache_of(40)
    cache.insert(b"m", b"a", response(10))
    cache.lookup(b"m", b"a")
    cache.lookup(b"m", b"b")
    values = {family.name: next(iter(family.samples)).value for family in cache.families()}
    assert values == {
        "nv_cache_num_entries": 1,
        "nv_cache_num_lookups": 2,
        "nv_cache_num_hits": 1,
        "nv_cache_num_misses": 1,
        "nv_cache_num_evictions": 0,
        "nv_cache_util": 0.25,
    }


@pytest.mark.parametrize(
    ("datatype", "array"),
    [(FP32, np.arange(6, dtype=np.float32).reshape(2, 3).T), (BYTES, np.array([b"a", b""], dtype=object))],
)
def test_what_is_kept_is_a_copy_that_nobody_can_change(datatype, array):
    wanted = array.copy()
    kept = copy_of([OutputTensor("Y", datatype, array)], {"p": 1})
    array[...] = array.flat[0]
    [output] = kept.outputs()
    assert output.array.tolist() == wanted.tolist()
    assert output.array.flags.c_contiguous
    assert kept.size_bytes > wanted.nbytes
    with pytest.raises(ValueError, match="read-only"):
        output.array[0] = wanted.flat[0]
    output.region = object()
    assert kept.outputs()[0].region is None


def test_a_large_one_takes_the_place_of_many_in_pieces_so_that_the_loop_is_not_held():
    later = []
    cache = LocalCache(12_000, later.append)
    for number in range(1200):
        cache.insert(b"m", b"%d" % number, response(10))
    cache.insert(b"m", b"large", response(12_000))
    assert (len(cache), cache.lookup(b"m", b"large")) == (700, None)
    while later:
        later.pop()()
    assert (len(cache), cache.used_bytes) == (1, 12_000)


def test_what_is_forgotten_before_it_is_put_in_does_not_come():
    later = []
    cache = LocalCache(12_000, later.append)
    for number in range(1200):
        cache.insert(b"other", b"%d" % number, response(10))
    cache.insert(b"m", b"large", response(12_000))
    cache.forget(b"m")
    while later:
        later.pop()()
    assert (len(cache), cache.lookup(b"m", b"large")) == (700, None)

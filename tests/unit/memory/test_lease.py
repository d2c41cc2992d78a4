"""A block is in use as long as any array made from its lease lives, however it was made."""

import gc
import threading
import weakref

import numpy as np
import pytest

from naiad.memory.lease import Leases


class ArrayInterface:
    """Hands an array over as libraries without numpy do; it keeps it."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


HOLDERS = {
    "itself": lambda array: array,
    "slice": lambda array: array[3:7],
    "no bytes": lambda array: array[5:5],
    "slice of a slice": lambda array: array[8:][::2][1:],
    "other dtype": lambda array: array[:16].view(np.float32),
    "other shape": lambda array: array.reshape(8, 8).T[2],
    "tensor": lambda array: array[16:48].view(np.int64).reshape(2, 2)[1],
    "scalar array": lambda array: array[3:4].reshape(()),
    "subclass": lambda array: array.view(np.recarray),
    "memmap of a slice": lambda array: array[:16].reshape(4, 4).view(np.memmap),
    "read-only": lambda array: np.broadcast_to(array[:1], (5,)),
    "window": lambda array: np.lib.stride_tricks.sliding_window_view(array, 4),
    "masked": lambda array: np.ma.masked_array(array[:4]),
    "iterator": lambda array: array.flat,
    "memoryview": lambda array: memoryview(array)[2:5],
    "cast memoryview": lambda array: memoryview(array).cast("i"),
    "array of a memoryview": lambda array: np.frombuffer(memoryview(array), np.int16),
    "array interface": lambda array: np.asarray(ArrayInterface(array[2:9])),
    "dlpack": lambda array: np.from_dlpack(array[2:9]),
    "dlpack capsule": lambda array: array.__dlpack__(),
    "ctypes pointer": lambda array: array.ctypes.data_as(np.ctypeslib.ctypes.c_void_p),
    "in a cycle": lambda array: cycle(array[1:]),
    "in a closure": lambda array: lambda: array,
}


def cycle(array):
    holder = {"array": array}
    holder["self"] = holder
    return holder


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def memory():
    return memoryview(bytearray(range(64)))


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_whatever_holds_an_array_keeps_the_block(leases, memory, hold):
    lease = leases.lend(1, 128, memory)
    held = hold(lease.array)
    assert lease.settle() is False
    assert (list(leases.returned), leases.count, leases.pinned_bytes) == ([], 1, 64)
    del held
    gc.collect()
    assert (list(leases.returned), leases.count, leases.pinned_bytes) == ([(1, 128)], 0, 0)


def test_a_block_that_nothing_uses_is_free_at_once(leases, memory, no_collection):
    lease = leases.lend(1, 0, memory)
    tensors = [lease.array[:32].view(np.float32).reshape(2, 4), lease.array[32:]]
    assert sum(tensor.nbytes for tensor in tensors) == 64
    del tensors
    assert lease.settle() is True
    assert (list(leases.returned), leases.count) == ([], 0)


def test_a_copy_does_not_keep_the_block(leases, memory):
    lease = leases.lend(1, 0, memory)
    copies = [lease.array.copy(), lease.array[:4] + 1, bytes(lease.array), lease.array[:8].tolist(), lease.array[3]]
    assert lease.settle() is True
    assert len(copies) == 5


def test_a_block_comes_back_once_when_the_last_of_several_arrays_dies(leases, memory, no_collection):
    lease = leases.lend(2, 64, memory)
    arrays = [lease.array[index:] for index in range(5)]
    lease.settle()
    while arrays:
        assert not leases.returned
        arrays.pop(0)
    assert list(leases.returned) == [(2, 64)]


def test_a_lease_is_settled_once(leases, memory):
    kept, free = leases.lend(1, 0, memory), leases.lend(1, 64, memory)
    array = kept.array
    assert (kept.settle(), free.settle()) == (False, True)
    assert (kept.settle(), free.settle()) == (False, False)
    assert leases.count == 1
    del array
    assert list(leases.returned) == [(1, 0)]


def test_a_block_of_no_bytes_can_be_lent(leases):
    lease = leases.lend(0, 0, memoryview(b""))
    assert lease.array.size == 0
    assert lease.settle() is True


@pytest.mark.parametrize("is_readonly", [True, False])
def test_an_array_may_be_written_to_when_its_view_may(leases, memory, is_readonly):
    lease = leases.lend(1, 0, memory.toreadonly() if is_readonly else memory)
    assert (lease.array.dtype, lease.array.shape, lease.array.flags.writeable) == (np.uint8, (64,), not is_readonly)


def test_an_array_shows_the_block_itself(leases, memory):
    lease = leases.lend(1, 0, memory[8:16])
    lease.array[0] = 99
    assert memory[8] == 99


def test_the_owner_is_told_of_each_return(memory):
    told = []
    leases = Leases(lambda: told.append(list(leases.returned)))
    lease = leases.lend(1, 0, memory)
    array = lease.array
    lease.settle()
    assert told == []
    del array
    assert told == [[(1, 0)]]


def test_a_block_in_a_cycle_comes_back_when_the_cycle_is_collected(leases, memory, no_collection):
    lease = leases.lend(1, 0, memory)
    cycle(lease.array)
    assert lease.settle() is False
    assert not leases.returned
    gc.collect()
    assert list(leases.returned) == [(1, 0)]


def test_an_array_that_its_dying_owner_saves_keeps_the_block(leases, memory, no_collection):
    saved = []

    class Owner:
        def __init__(self, array):
            self.array = array
            self.itself = self

        def __del__(self):
            saved.append(self.array)

    lease = leases.lend(1, 0, memory)
    owner = weakref.ref(Owner(lease.array))
    lease.settle()
    gc.collect()
    assert owner() is None
    assert (len(saved), list(leases.returned)) == (1, [])
    saved.clear()
    assert list(leases.returned) == [(1, 0)]


def test_arrays_may_die_on_any_thread(leases, memory):
    arrays = []
    for number in range(200):
        lease = leases.lend(1, number * 64, memory)
        arrays.append(lease.array[1:])
        lease.settle()
    threads = [threading.Thread(target=drop, args=(arrays[start::4],)) for start in range(4)]
    arrays.clear()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads, thread
    gc.collect()
    assert sorted(leases.returned) == [(1, number * 64) for number in range(200)]
    assert leases.count == 0


def test_the_memory_outlives_whoever_kept_the_leases(memory):
    leases = Leases()
    lease = leases.lend(1, 0, memory)
    array = lease.array[5:6]
    lease.settle()
    del leases, lease
    gc.collect()
    assert array[0] == 5


def drop(arrays):
    while arrays:
        arrays.pop()

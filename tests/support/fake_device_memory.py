"""A `DeviceMemory` without a GPU, for tests: allocations are bytearrays, and every misuse of an address is written down."""

from __future__ import annotations

import threading
from collections import Counter

from naiad.memory.client_regions.device_memory import HANDLE_BYTES, DeviceMemoryError, NoDeviceError


class FakeDeviceMemory:
    """`export` is what a client does; the rest is what a server may ask of a driver.

    `gate` is open; while a test has cleared it, copies wait. `fault` is the text with which every copy is refused.
    """

    def __init__(self, device_count: int = 0) -> None:
        self._device_count = device_count
        self._lock = threading.Lock()
        self._exported: dict[bytes, tuple[int, int]] = {}
        self._allocations: dict[int, bytearray] = {}
        self._copying: Counter[int] = Counter()
        self.opened: Counter[int] = Counter()
        self.threads: set[int] = set()
        self.misuses: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_copying = threading.Event()
        self.fault = ""

    def export(self, size_bytes: int, device_id: int = 0) -> bytes:
        """Allocate on a GPU and return the handle."""
        address = 4096 * 4096 * (len(self._exported) + 1)
        handle = address.to_bytes(8, "big").rjust(HANDLE_BYTES, b"\xfe")
        self._exported[handle] = (device_id, address)
        self._allocations[address] = bytearray(size_bytes)
        return handle

    def contents(self, handle: bytes) -> bytearray:
        """Return an allocation as its owner sees it."""
        return self._allocations[self._exported[handle][1]]

    def open_count(self) -> int:
        """Return how often addresses are open."""
        return self.opened.total()

    def device_count(self) -> int:
        self.threads.add(threading.get_ident())
        if not self._device_count:
            raise NoDeviceError("the test has none")
        return self._device_count

    def open(self, device_id: int, raw_handle: bytes) -> int:
        owner, address = self._exported.get(raw_handle, (None, 0))
        if owner != device_id:
            raise DeviceMemoryError("invalid resource handle")
        with self._lock:
            self.opened[address] += 1
        return address

    def allocation_bytes(self, device_id: int, address: int) -> int:
        self._check_open(address, "asked for its size")
        return len(self._allocations[address])

    def close(self, device_id: int, address: int) -> None:
        self.threads.add(threading.get_ident())
        self._check_open(address, "closed")
        with self._lock:
            if self._copying[address]:
                self.misuses.append(f"{address} was closed while it was copied")
            self.opened[address] -= 1

    def copy_in(self, device_id: int, address: int, target: memoryview) -> None:
        base, offset = self._begin(address, len(target))
        target[:] = self._allocations[base][offset : offset + len(target)]
        self._end(base)

    def copy_out(self, device_id: int, address: int, data: memoryview) -> None:
        base, offset = self._begin(address, len(data))
        self._allocations[base][offset : offset + len(data)] = data
        self._end(base)

    def _begin(self, address: int, size_bytes: int) -> tuple[int, int]:
        base = max(known for known in self._allocations if known <= address)
        offset = address - base
        self.threads.add(threading.get_ident())
        self._check_open(base, "copied")
        if offset + size_bytes > len(self._allocations[base]):
            self._misuse(f"{size_bytes} bytes at {offset} were copied of {len(self._allocations[base])}")
        with self._lock:
            self._copying[base] += 1
        self.is_copying.set()
        assert self.gate.wait(10)
        if self.fault:
            self._end(base)
            raise DeviceMemoryError(self.fault)
        return base, offset

    def _end(self, base: int) -> None:
        self._check_open(base, "still copied")
        with self._lock:
            self._copying[base] -= 1

    def _check_open(self, address: int, what: str) -> None:
        if self.opened[address] < 1:
            self._misuse(f"{address} was {what} without being open")

    def _misuse(self, text: str) -> None:
        self.misuses.append(text)
        raise AssertionError(text)

"""`DeviceMemory`: what is asked of the driver of GPUs for memory that clients share.

Owns the seam and its errors. Imports nothing of any driver: the one that is real is `core.cuda_memory`.
"""

from __future__ import annotations

from typing import Protocol

HANDLE_BYTES = 64


class DeviceMemoryError(Exception):
    """The driver refuses; the text is its reason, for the end of a sentence."""


class NoDeviceError(DeviceMemoryError):
    """There is no GPU that could be asked, as a package, a driver or the GPU itself is missing; the text says which."""


class DeviceMemory(Protocol):
    """Every method may block, for seconds when a GPU is used for the first time, and may be called on any thread, by several
    threads at once. All but `device_count` raise DeviceMemoryError.

    An address is good from `open` until its `close`; whoever calls sees to it that no copy is running at that time.
    """

    def device_count(self) -> int:
        """Return how many GPUs there are, at least 1. Raises NoDeviceError."""

    def open(self, device_id: int, raw_handle: bytes) -> int:
        """Map what another process has exported as `raw_handle`, `HANDLE_BYTES` bytes, and return its address."""

    def allocation_bytes(self, device_id: int, address: int) -> int:
        """Return how many bytes from `address` belong to the allocation."""

    def close(self, device_id: int, address: int) -> None:
        """Unmap what `open` returned. The memory stays its owner's."""

    def copy_in(self, device_id: int, address: int, target: memoryview) -> None:
        """Fill `target`, writable bytes in one piece, from `address` on."""

    def copy_out(self, device_id: int, address: int, data: memoryview) -> None:
        """Put `data`, bytes in one piece, at `address`; every process sees them when this returns."""

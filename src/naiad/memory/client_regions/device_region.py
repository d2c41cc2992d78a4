"""`DeviceRegion`: a piece of a GPU's memory that a client has exported.

Owns the opened address, its bounds and the count of users. The driver is asked through `DeviceMemory` only.
"""

from __future__ import annotations

import logging

import numpy as np

from naiad.errors import InferenceServerError, internal, invalid_argument
from naiad.memory.client_regions.device_memory import HANDLE_BYTES, DeviceMemory, DeviceMemoryError, NoDeviceError
from naiad.memory.client_regions.piece import check_piece
from naiad.memory.client_regions.region import Buffer, Discard

_log = logging.getLogger("naiad.memory")


class DeviceRegion:
    """The first `size_bytes` bytes of an allocation on the GPU `device_id`, known to clients as `name`.

    Made with one user, who made it; it is closed, by way of `discard`, when the last has released it. `read` and `write` block
    and may be called on any thread by who holds it, the rest on the loop thread.
    """

    __slots__ = ("_address", "_discard", "_memory", "_users", "device_id", "name", "size_bytes")
    is_on_device = True

    def __init__(self, name: str, device_id: int, size_bytes: int, address: int, memory: DeviceMemory) -> None:
        self.name = name
        self.device_id = device_id
        self.size_bytes = size_bytes
        self._address = address
        self._memory = memory
        self._users = 1
        self._discard: Discard | None = None

    @property
    def users(self) -> int:
        """How many hold it: the registry, while it is registered, and the requests that use it."""
        return self._users

    def close_by(self, discard: Discard) -> None:
        """Say who runs what closes it; nobody means the last user's own thread."""
        self._discard = discard

    def hold(self) -> None:
        """Count one more user."""
        self._users += 1

    def release(self) -> None:
        """Count one user less; the last one closes it."""
        self._users -= 1
        if self._users:
            return
        if self._discard is None:
            self._close()
        else:
            self._discard(self._close)

    def check_range(self, offset: int, size_bytes: int) -> None:
        """Raise INVALID_ARGUMENT unless `size_bytes` bytes from `offset` lie in the region."""
        check_piece(self.name, self.size_bytes, offset, size_bytes)

    def read(self, offset: int, size_bytes: int) -> memoryview:
        """Return a copy of these bytes in the host's memory. Raises as `check_range`, and INTERNAL when the driver refuses."""
        self.check_range(offset, size_bytes)
        copied = np.empty(size_bytes, np.uint8).data
        if size_bytes:
            try:
                self._memory.copy_in(self.device_id, self._address + offset, copied)
            except DeviceMemoryError as error:
                raise internal(f"can't read {size_bytes} bytes of CUDA shared memory region '{self.name}': {error}") from None
        return copied.toreadonly()

    def write(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`. Raises as `read`."""
        view = memoryview(data).cast("B")
        self.check_range(offset, len(view))
        if not len(view):
            return
        try:
            self._memory.copy_out(self.device_id, self._address + offset, view)
        except DeviceMemoryError as error:
            raise internal(f"can't write {len(view)} bytes to CUDA shared memory region '{self.name}': {error}") from None

    def _close(self) -> None:
        try:
            self._memory.close(self.device_id, self._address)
        except DeviceMemoryError as error:
            _log.warning("CUDA shared memory region '%s' couldn't be closed: %s", self.name, error)


def check_handle(name: str, raw_handle: bytes) -> None:
    """Raise INVALID_ARGUMENT for a handle that can't be one."""
    if len(raw_handle) != HANDLE_BYTES:
        raise invalid_argument(
            f"failed to register CUDA shared memory region '{name}': 'raw_handle' must be base64 of {HANDLE_BYTES} "
            f"bytes, got {len(raw_handle)} bytes"
        )


def open_device_region(name: str, raw_handle: bytes, device_id: int, size_bytes: int, memory: DeviceMemory) -> DeviceRegion:
    """Open `size_bytes` bytes of what a client has exported. Blocks, on any thread; see `DeviceRegion` for who closes it.

    Raises INVALID_ARGUMENT where there is no GPU, and for a device or size that isn't there; INTERNAL when the driver refuses.
    """
    try:
        count = memory.device_count()
    except NoDeviceError as error:
        raise invalid_argument(f"failed to register CUDA shared memory region: '{name}', GPUs not supported: {error}") from None
    if not 0 <= device_id < count:
        raise _invalid(name, f"device_id {device_id} must be from 0 to {count - 1}, one of the {count} GPUs")
    try:
        address = memory.open(device_id, raw_handle)
    except DeviceMemoryError as error:
        raise internal(
            f"failed to register CUDA shared memory region '{name}': failed to open CUDA IPC handle: {error}"
        ) from None
    region = DeviceRegion(name, device_id, size_bytes, address, memory)
    try:
        _check_size(region, memory.allocation_bytes(device_id, address))
    except DeviceMemoryError as error:
        region.release()
        raise internal(f"failed to register CUDA shared memory region '{name}': its size isn't known: {error}") from None
    except InferenceServerError:
        region.release()
        raise
    return region


def _check_size(region: DeviceRegion, allocation_bytes: int) -> None:
    if not 1 <= region.size_bytes <= allocation_bytes:
        raise _invalid(
            region.name,
            f"invalid args, byte_size {region.size_bytes} must be at least 1 and lie in the allocation's "
            f"{allocation_bytes} bytes",
        )


def _invalid(name: str, reason: str) -> InferenceServerError:
    return invalid_argument(f"failed to register CUDA shared memory region '{name}': {reason}")

"""Memory of NVIDIA GPUs by way of the package cuda-python: the `DeviceMemory` that is real.

Owns the only import of that package, made when it is first needed, and the words for what is missing: the package, a driver,
a GPU. Where the package is there but no driver is, its functions answer with an error or raise RuntimeError.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import numpy as np

from naiad.memory.client_regions.device_memory import HANDLE_BYTES, DeviceMemoryError, NoDeviceError


class CudaMemory:
    """See `DeviceMemory`. Each method names its GPU, as what a thread has chosen before says nothing of the next."""

    def device_count(self) -> int:
        """See `DeviceMemory.device_count`."""
        try:
            runtime = import_module("cuda.bindings.runtime")
        except ImportError as error:
            # What the package needs may be missing, too.
            raise NoDeviceError(
                f"the package cuda-python (12.8 or newer) can't be imported ({error}), install it by pip install 'naiad[cuda]'"
            ) from None
        try:
            count: int = _checked(runtime, runtime.cudaGetDeviceCount())
        except DeviceMemoryError as error:
            raise NoDeviceError(f"the NVIDIA driver is missing, too old or shows no GPU: {error}") from None
        if not count:
            raise NoDeviceError("the NVIDIA driver shows no GPU")
        return count

    def open(self, device_id: int, raw_handle: bytes) -> int:
        """See `DeviceMemory.open`."""
        runtime = _on_device(device_id)
        handle = runtime.cudaIpcMemHandle_t()
        # Its bytes have no attribute in every release, its address is told by all.
        ctypes.memmove(handle.getPtr(), raw_handle, HANDLE_BYTES)
        address = _checked(runtime, runtime.cudaIpcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess))
        return int(address)

    def allocation_bytes(self, device_id: int, address: int) -> int:
        """See `DeviceMemory.allocation_bytes`."""
        _on_device(device_id)
        driver = import_module("cuda.bindings.driver")
        try:
            code, base, size_bytes = driver.cuMemGetAddressRange(driver.CUdeviceptr(address))
        except RuntimeError as error:
            raise DeviceMemoryError(str(error)) from None
        if code != driver.CUresult.CUDA_SUCCESS:
            raise DeviceMemoryError(code.name)
        return int(base) + int(size_bytes) - address

    def close(self, device_id: int, address: int) -> None:
        """See `DeviceMemory.close`."""
        runtime = _on_device(device_id)
        _checked(runtime, runtime.cudaIpcCloseMemHandle(address))

    def copy_in(self, device_id: int, address: int, target: memoryview) -> None:
        """See `DeviceMemory.copy_in`."""
        runtime = _on_device(device_id)
        kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        _checked(runtime, runtime.cudaMemcpy(_address_of(target), address, len(target), kind))

    def copy_out(self, device_id: int, address: int, data: memoryview) -> None:
        """See `DeviceMemory.copy_out`."""
        runtime = _on_device(device_id)
        kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        _checked(runtime, runtime.cudaMemcpy(address, _address_of(data), len(data), kind))
        # The copy may still be on its way from a staging buffer when it returns.
        _checked(runtime, runtime.cudaStreamSynchronize(0))


def _on_device(device_id: int) -> Any:
    """Make this the GPU of the thread; return the runtime."""
    runtime = import_module("cuda.bindings.runtime")
    _checked(runtime, runtime.cudaSetDevice(device_id))
    return runtime


def _checked(runtime: Any, answer: tuple[Any, ...]) -> Any:
    """Return the value of an answer, None when it has none. Raises DeviceMemoryError for an error in it."""
    code = answer[0]
    if code == runtime.cudaError_t.cudaSuccess:
        return answer[1] if len(answer) > 1 else None
    text: bytes = runtime.cudaGetErrorString(code)[1]
    raise DeviceMemoryError(f"{text.decode()} ({code.name})")


def _address_of(data: memoryview) -> int:
    """Return where the bytes lie, also of a view that may only be read."""
    return int(np.frombuffer(data, np.uint8).ctypes.data)

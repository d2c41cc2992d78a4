"""DLPack: arrays shared with torch, jax, cupy … without a copy.

Owns what numpy's own DLPack doesn't do: BF16 and BOOL in all its versions. numpy makes and reads the capsules, with words of
the same size in their place; the type's code in the capsule is changed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from naiad.worker.api.errors import TritonModelException

Array = np.ndarray[Any, Any]

CPU = (1, 0)
"""Device type and number of the host's memory."""

_HOST_DEVICES = (1, 3, 11, 13)
# Codes of a DLDataType.
_UINT, _BFLOAT, _BOOL = 1, 4, 6
_CAPSULE = b"dltensor"

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


class _Head(ctypes.Structure):
    """The begin of a DLManagedTensor, as far as it is read here."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dims", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Holder:
    """Gives a capsule to `numpy.from_dlpack`, which wants an object with the protocol's methods."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


def to_capsule(array: Array, datatype: str) -> Any:
    """Return a capsule of `array`; BF16 is given as uint16 words. A read-only array is copied, since DLPack can't say so."""
    if not array.flags.writeable:
        array = array.copy()
    capsule = (array.view(np.uint8) if datatype == "BOOL" else array).__dlpack__()
    code = {"BOOL": _BOOL, "BF16": _BFLOAT}.get(datatype)
    if code is not None:
        _head(capsule).code = code
    return capsule


def from_object(owner: Any) -> tuple[Array, bool]:
    """Return the array of a capsule, or of an object with `__dlpack__`, and whether it is BF16 (as uint16 words then).

    A tensor of a GPU is copied to the host by its own `cpu()` or `get()`. Raises TritonModelException with what can't be read.
    """
    kind = type(owner).__name__
    if kind != "PyCapsule":
        if not hasattr(owner, "__dlpack__") or not hasattr(owner, "__dlpack_device__"):
            raise TritonModelException(f"a {kind} has no DLPack: an object with __dlpack__ or a capsule is needed")
        owner = _on_host(owner)
    try:
        return _array(owner if kind == "PyCapsule" else owner.__dlpack__())
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TritonModelException(f"a {kind} can't be read by DLPack: {error}") from error


def _on_host(owner: Any) -> Any:
    device = int(owner.__dlpack_device__()[0])
    if device in _HOST_DEVICES:
        return owner
    for name in ("cpu", "get"):
        if hasattr(owner, name):
            return getattr(owner, name)()
    raise TritonModelException(f"a {type(owner).__name__} lies on a device of DLPack type {device}: copy it to the host first")


def _array(capsule: Any) -> tuple[Array, bool]:
    head = _head(capsule)
    if head.device_type not in _HOST_DEVICES:
        raise TritonModelException(f"the capsule is of a device of DLPack type {head.device_type}: copy it to the host first")
    code = head.code
    is_bf16 = code == _BFLOAT and head.bits == np.dtype(np.uint16).itemsize * 8
    if is_bf16 or code == _BOOL:
        head.code = _UINT
    # Pinned memory is the host's too, numpy knows only plain one.
    head.device_type = CPU[0]
    array: Array = np.from_dlpack(_Holder(capsule))
    return (array.view(np.bool_) if code == _BOOL else array), is_bf16


def _head(capsule: Any) -> _Head:
    return _Head.from_address(_pointer(capsule, _CAPSULE))

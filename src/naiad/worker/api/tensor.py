"""`Tensor`: a named array, as a model receives and returns it.

Owns the way between numpy arrays and the wire's form. A received tensor is a view of shared memory: what the model writes to
the array it writes to that memory, and the memory is kept as long as the array is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import asarray, ascontiguousarray, prod  # a model may put its own in the place of `np.prod`

from naiad.tensor import bytes_tensor, datatype
from naiad.worker.api import dlpack
from naiad.worker.api.datatypes import NUMBERS, datatype_of, text_elements
from naiad.worker.api.errors import TritonModelException, check_type

Array = np.ndarray[Any, Any]


class Tensor:
    """See the module. A tensor isn't changed, its array may be.

    `numpy_array` keeps its dtype, nothing is cast. One that isn't C-contiguous or is big-endian is copied into one that is
    neither; an array without dims becomes one of shape [1].
    """

    __slots__ = ("_array", "_data", "_datatype", "_name", "_shape")

    _array: Array | None
    _data: Array | None
    _datatype: str | None
    _shape: Sequence[int]

    def __init__(self, name: str, numpy_array: Array) -> None:
        """Raises TritonModelException when `name` is no text or `numpy_array` no numpy array."""
        check_type("a tensor's name", name, str)
        if type(numpy_array) is not np.ndarray:
            numpy_array = _plain(name, numpy_array)
        self._name = name
        array = ascontiguousarray(numpy_array)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        self._array = array
        self._data = None
        self._shape = array.shape
        self._datatype = datatype_of(array.dtype)

    @classmethod
    def received(cls, name: str, datatype: str, shape: Sequence[int], data: Array) -> Tensor:
        """Return the tensor of `shape` whose bytes `data` (flat uint8) holds; BYTES are length-prefixed, BF16 16-bit words."""
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._datatype = datatype
        tensor._shape = shape
        tensor._data = data
        tensor._array = None
        return tensor

    def wire(self) -> tuple[str, tuple[int, ...], bytes | memoryview]:
        """Return datatype, shape and the bytes to send, in C order; a view of the array but for strings.

        Raises TritonModelException when the array can't be sent: a dtype without a datatype, an element without bytes.
        """
        name = self._datatype
        if name is None:
            assert self._array is not None
            raise TritonModelException(
                f"tensor '{self._name}' has dtype {self._array.dtype}, which no datatype holds: convert it, for example by "
                "astype(numpy.float32)"
            )
        if self._array is None:
            assert self._data is not None
            return name, tuple(self._shape), self._data.data
        shape = self._array.shape
        if name == "BYTES":
            try:
                return name, shape, bytes_tensor.encode(text_elements(self._array))
            except TritonModelException as error:
                raise TritonModelException(f"tensor '{self._name}': {error}") from None
        return name, shape, self._words().data if self._array.size else b""

    def name(self) -> str:
        """Return the tensor's name."""
        return self._name

    def shape(self) -> list[int]:
        """Return the sizes of the dims."""
        return list(self._shape)

    def triton_dtype(self) -> int:
        """Return Triton's number of the datatype, see `triton_to_numpy_type`; 0 for an array that has none."""
        return NUMBERS.get(self._datatype or "", 0)

    def is_cpu(self) -> bool:
        """Return True: tensors lie in the host's memory."""
        return True

    def as_numpy(self) -> Array:
        """Return the array: the one given, or a view of the received bytes that may be written to. Strings come as an object
        array of `bytes`, made once.

        Raises TritonModelException for a BF16 tensor, which numpy has no dtype for: take it by DLPack.
        """
        array = self._array
        if array is not None and (self._datatype != "BF16" or array.dtype != np.uint16):
            return array
        if self._datatype == "BF16":
            raise TritonModelException(
                f"tensor '{self._name}' is BF16, which numpy has no dtype for: take it by DLPack, for example torch.from_dlpack"
            )
        assert self._data is not None
        if self._datatype == "BYTES":
            count = int(prod(self._shape, dtype=np.int64))
            array = bytes_tensor.as_array(bytes_tensor.decode(self._data.data, count), tuple(self._shape))
        else:
            array = self._words()
        self._array = array
        return array

    def to_dlpack(self) -> Any:
        """Return a DLPack capsule over the tensor's memory, to be used once. Raises TritonModelException for strings and for a
        dtype that DLPack has no code for.
        """
        name = self._datatype
        if name is None or name == "BYTES":
            kind = "strings" if name else f"dtype {self.as_numpy().dtype}"
            raise TritonModelException(f"tensor '{self._name}' has {kind}: DLPack knows numbers only")
        return dlpack.to_capsule(self._words(), name)

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """Return a tensor over the memory of `tensor`, a capsule or an object with `__dlpack__`, such as a torch tensor.

        One on a GPU is copied to the host. Raises TritonModelException with what can't be read.
        """
        try:
            array, is_bf16 = dlpack.from_object(tensor)
        except TritonModelException as error:
            raise TritonModelException(f"tensor '{name}': {error}") from error
        made = Tensor(name, array)
        if is_bf16:
            made._datatype = "BF16"
        return made

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule, see `to_dlpack`. Raises BufferError for another device than the host."""
        if dl_device is not None and tuple(dl_device) != dlpack.CPU:
            raise BufferError(f"tensor '{self._name}' lies in the host's memory, not on device {dl_device}")
        if copy and self._datatype not in (None, "BYTES"):
            return dlpack.to_capsule(self._words().copy(), self._datatype or "")
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU

    def __repr__(self) -> str:
        return f"Tensor({self._name!r}, {self._datatype}, {self.shape()})"

    def _words(self) -> Array:
        """Return the array of numbers; BF16 as uint16."""
        array = self._array
        if array is not None:
            return array.view(np.uint16) if self._datatype == "BF16" else array
        assert self._data is not None
        assert self._datatype is not None
        return self._data.view(datatype.BY_NAME[self._datatype].numpy).reshape(tuple(self._shape))


def _plain(name: str, value: Any) -> Array:
    """Return a subclass's array as a plain one. Raises TritonModelException for what isn't an array, or not only one."""
    if isinstance(value, np.ma.MaskedArray):
        raise TritonModelException(f"tensor '{name}' needs a plain numpy array, got a masked one: fill it first, by filled()")
    if isinstance(value, np.ndarray):
        return asarray(value)
    how = "Tensor.from_dlpack(name, value)" if hasattr(value, "__dlpack__") else "numpy.asarray(value, dtype)"
    raise TritonModelException(f"tensor '{name}' needs a numpy array, got a {type(value).__name__}: make one by {how}")

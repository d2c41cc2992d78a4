"""gRPC's length-prefixed messages: one byte of flags, four bytes of length (big-endian), the message.

Owns how messages are cut out of a body that comes in pieces of any size, and the prefix of those that go out. Doesn't unpack.
"""

from __future__ import annotations

from collections.abc import Sequence

from naiad.errors import Code, InferenceServerError, internal
from naiad.request.call import Buffer

PREFIX_SIZE = 5
# Below this, copying the message out of what was received costs less than looking at it through a view.
_SMALL = 16384
# Where the content of a `bytes` begins is a multiple of this.
_ALIGNMENT = 16
# Pieces below this are gathered in one growing array: a list of them would cost more than they hold.
_TINY = 1024


class FramedMessage:
    """One message as it was framed: `is_compressed` is its flag."""

    __slots__ = ("data", "is_compressed")

    def __init__(self, data: Buffer, is_compressed: bool) -> None:
        self.data = data
        self.is_compressed = is_compressed


class MessageReader:
    """Cuts the messages out of one request body. Memory grows with what was received, never with an announced length."""

    __slots__ = ("_max_size", "_missing", "_pieces", "_prefix")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._prefix = b""
        self._pieces: list[Buffer] = []
        self._missing = 0

    @property
    def is_between_messages(self) -> bool:
        """Whether the body may end here."""
        return not self._prefix

    def feed(self, data: bytes) -> Sequence[FramedMessage]:
        """Return the messages that `data` completes.

        Raises INTERNAL for a flag that isn't 0 or 1 and RESOURCE_EXHAUSTED for a length over the limit, as gRPC does.
        """
        size = len(data)
        if _TINY <= size < self._missing:
            # One of many pieces of a large message, as most are.
            self._pieces.append(data)
            self._missing -= size
            return ()
        if not self._prefix and size >= PREFIX_SIZE and size == PREFIX_SIZE + self._length(data):
            whole = data[PREFIX_SIZE:] if size <= _SMALL else memoryview(data)[PREFIX_SIZE:]
            return [FramedMessage(whole, data[0] == 1)]
        found: list[FramedMessage] = []
        position = 0
        while position < size:
            if len(self._prefix) < PREFIX_SIZE:
                position = self._read_prefix(data, position)
            else:
                end = min(size, position + self._missing)
                self._keep(data, position, end)
                position = end
            if len(self._prefix) == PREFIX_SIZE and not self._missing:
                found.append(self._take())
        return found

    def _read_prefix(self, data: bytes, position: int) -> int:
        end = position + PREFIX_SIZE - len(self._prefix)
        self._prefix += data[position:end]
        if len(self._prefix) == PREFIX_SIZE:
            self._missing = self._length(self._prefix)
        return end

    def _keep(self, data: bytes, position: int, end: int) -> None:
        pieces, size = self._pieces, end - position
        self._missing -= size
        if size >= _SMALL:
            pieces.append(memoryview(data)[position:end])
        elif size >= _TINY:
            pieces.append(data[position:end])
        elif pieces and type(pieces[-1]) is bytearray:
            pieces[-1] += data[position:end]
        else:
            pieces.append(bytearray(data[position:end]))

    def _take(self) -> FramedMessage:
        message = FramedMessage(_joined(self._pieces), self._prefix[0] == 1)
        self._prefix = b""
        self._pieces = []
        return message

    def _length(self, prefix: bytes) -> int:
        if prefix[0] > 1:
            raise internal(f"the flag byte of a gRPC message is {prefix[0]}, it may be 0 or 1")
        length = int.from_bytes(prefix[1:PREFIX_SIZE], "big")
        if length > self._max_size:
            raise InferenceServerError(
                Code.RESOURCE_EXHAUSTED,
                f"a message of {length} bytes is larger than the limit of {self._max_size}, "
                "raise it with --grpc-max-message-size",
            )
        return length


def _joined(pieces: list[Buffer]) -> Buffer:
    """Return the pieces as one, a large message with its end on a boundary: its last tensor, which is most often its end, is
    then one that nobody has to copy again to have it aligned.
    """
    size = sum(map(len, pieces))
    if size <= _SMALL:
        return b"".join(pieces)
    padding = -size % _ALIGNMENT
    return memoryview(b"".join((bytes(padding), *pieces)))[padding:]


def prefix(size: int, is_compressed: bool) -> bytes:
    """Return the prefix of a message of `size` bytes."""
    return (b"\x01" if is_compressed else b"\x00") + size.to_bytes(4, "big")

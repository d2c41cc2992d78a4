"""Control frames: what the server and a worker process say to each other over their Unix socket.

Owns the layout of a frame and the list of kinds. A frame is a fixed header and a tail. Tensors aren't in it: the header names
a block of shared memory, the tail says what lies where in that block. The tail is JSON, UTF-8, but for RELEASE. A frame of
another version than one's own can't come: HELLO is the first frame, and a worker that says another version is refused.

Server to worker (`id` is the header's):

| kind | id | block | tail |
|---|---|---|---|
| SEGMENT | segment | offset 0, its size | none; the descriptor comes over the second socket, sent before this frame |
| SEGMENT_GONE | segment | | none: forget the segment, nothing of it will be used again |
| RELEASE | | | blocks of the worker's arena that the server has let go: see `pack_blocks` |
| LOAD | question | | how to import the model: `LoadMessage` |
| COMPLETE_CONFIG | question | | {"config": ModelConfig in its JSON form} |
| INITIALIZE | question | | what an instance starts with: `InitializeMessage` |
| CHECK_READY | question | | none; the answer's tail is {"is_ready": …} |
| FINALIZE | question | | none; the worker answers DONE when `finalize` has run, then exits with 0 |
| EXECUTE | first request | inputs | [[input, …], …] and more, see `ExecuteMessage`: the k-th request has id `id + k` |
| CANCEL | request | | none: the client is gone |
| CREDIT | request | | none; `value` responses more may be sent |
| CALL_RESPONSE | call | outputs | a response to a nested call: `ResponseMessage` |
| ANSWER | question | | the answer to a QUERY: {"value": …} or {"error": [code, text]} |

Worker to server:

| kind | id | block | tail |
|---|---|---|---|
| HELLO | version | | {"pid": …, "python": "3.11.7", "numpy": "2.3.0"} |
| SEGMENT, SEGMENT_GONE, RELEASE | | | as above, of the worker's arena and the server's blocks |
| DONE | question | | the answer to LOAD, COMPLETE_CONFIG, INITIALIZE, CHECK_READY, FINALIZE: an object |
| FAILED | question | | {"message": …, "traceback": …} in its place |
| RESULT | first request | outputs | [response, …]: all responses of an EXECUTE in its order; `execute` has returned |
| RETURNED | first request | | `execute` has returned (FLAG_FAILED: raised); requests without an answer send RESPONSE frames |
| RESPONSE | request | outputs | a response, see `ResponseMessage`; FLAG_FINAL ends the request |
| RESCHEDULE | request | | the model wants the request again, in a later batch; before the RESULT or RETURNED of its batch |
| CALL | call | inputs | a request to another model: `CallMessage` |
| CALL_CANCEL | call | | none: the caller wants no more responses; an empty final CALL_RESPONSE answers it |
| CALL_CREDIT | call | | none; `value` responses more may be sent |
| QUERY | question | | {"name": …, "arguments": {…}}: load_model, unload_model, is_model_ready, metric_value |
| METRIC | | | {"operation": …, …}: custom metrics, see `worker.api.metrics` |
| LOG | | | {"level": "INFO" …, "message": …} |

Whoever allocated a block frees it when the other side releases it. An input block is released by FLAG_RELEASED on the RESULT
or RETURNED of its EXECUTE when the model kept nothing of it, by RELEASE later otherwise. The header's `value` of RESULT and
RETURNED is how long `execute` took, in nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from naiad.memory.arena import Block

VERSION = 1

HEADER = struct.Struct("<IHHQQIQQ")
"""Size of the tail, kind, flags, id, value; segment, offset and size of the block."""

PROGRESS = struct.Struct("<Q")
"""What a worker writes to shared memory: the id of the EXECUTE that it began last, for the server to read after its death."""

_BLOCK = struct.Struct("<IQ")

MAX_TAIL_BYTES = 1 << 28
"""A longer tail is no frame: the stream is broken."""

FLAG_FINAL = 1
"""RESPONSE, CALL_RESPONSE: the last one. Without a tail it carries no response, only the end."""
FLAG_RELEASED = 2
"""RESULT, RETURNED: nothing of the input block is in use any more."""
FLAG_FAILED = 4
"""RETURNED: `execute` raised; the tail is {"error": [code, text]} for every request of the batch that has no answer yet."""
FLAG_DECOUPLED = 8
"""CALL: the caller takes any number of responses."""


class Kind(IntEnum):
    """What a frame says. Numbers are part of the version."""

    HELLO = 1
    SEGMENT = 2
    SEGMENT_GONE = 3
    RELEASE = 4
    LOAD = 10
    COMPLETE_CONFIG = 11
    INITIALIZE = 12
    CHECK_READY = 13
    FINALIZE = 14
    DONE = 15
    FAILED = 16
    EXECUTE = 20
    CANCEL = 21
    CREDIT = 22
    RESULT = 23
    RETURNED = 24
    RESPONSE = 25
    RESCHEDULE = 26
    CALL = 30
    CALL_CANCEL = 31
    CALL_CREDIT = 32
    CALL_RESPONSE = 33
    QUERY = 40
    ANSWER = 41
    METRIC = 42
    LOG = 43


class Frame(NamedTuple):
    """One received frame; `tail` is a copy. `segment`, `offset` and `size` name the block, all 0 when there is none."""

    kind: int
    flags: int
    id: int
    value: int
    segment: int
    offset: int
    size: int
    tail: bytes


NO_BLOCK = Block(0, 0, 0)


def pack(kind: int, frame_id: int, tail: bytes = b"", *, flags: int = 0, block: Block = NO_BLOCK, value: int = 0) -> bytes:
    """Return the bytes of a frame."""
    return HEADER.pack(len(tail), kind, flags, frame_id, value, *block) + tail


def pack_execute(first_id: int, tail: bytes, block: Block) -> bytes:
    """Return the bytes of an EXECUTE."""
    segment, offset, size = block
    return HEADER.pack(len(tail), Kind.EXECUTE, 0, first_id, 0, segment, offset, size) + tail


def pack_blocks(blocks: Iterable[tuple[int, int]]) -> bytes:
    """Return the tail of a RELEASE: (segment, offset) of each block."""
    return b"".join([_BLOCK.pack(segment, offset) for segment, offset in blocks])


def unpack_blocks(tail: bytes) -> Iterator[tuple[int, int]]:
    """Yield what `pack_blocks` packed. Raises struct.error when the tail isn't whole."""
    yield from _BLOCK.iter_unpack(tail)


class FrameReader:
    """Cuts a stream of bytes into frames, however the bytes come."""

    __slots__ = ("_missing", "_parts")

    def __init__(self) -> None:
        # The beginning of a frame, joined when it is whole: a long tail comes in thousands of parts.
        self._parts: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes. Raises ValueError when the stream can't be one of frames."""
        if self._parts:
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        frames: list[Frame] = []
        position, end = 0, len(data)
        header_size = HEADER.size
        while end - position >= header_size:
            tail_size, kind, flags, frame_id, value, segment, offset, size = HEADER.unpack_from(data, position)
            if tail_size > MAX_TAIL_BYTES:
                raise ValueError(
                    f"a frame of kind {kind} has a tail of {tail_size} bytes, at most {MAX_TAIL_BYTES} are possible"
                )
            start = position + header_size
            if end - start < tail_size:
                self._keep(data[position:], header_size + tail_size)
                return frames
            position = start + tail_size
            frames.append(Frame(kind, flags, frame_id, value, segment, offset, size, data[start:position]))
        if position < end:
            self._keep(data[position:], header_size)
        return frames

    def _keep(self, part: bytes, wanted: int) -> None:
        """Keep the beginning of a frame until there are `wanted` bytes of it."""
        self._parts.append(part)
        self._missing = wanted - len(part)

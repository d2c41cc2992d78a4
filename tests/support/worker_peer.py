"""The server's end of a worker's sockets, done by hand: a test says each frame and reads each answer.

`running_worker` runs a real worker, but for its process, on a thread of the test's.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from fake_host import FakeHost

from naiad.memory.arena import Arena, ArenaLimits, Block
from naiad.memory.mapping import Mapping
from naiad.tensor import bytes_tensor
from naiad.tensor.datatype import BY_NAME
from naiad.worker.api import host
from naiad.worker.frames import FLAG_RELEASED, NO_BLOCK, Frame, FrameReader, Kind, pack, pack_blocks, unpack_blocks
from naiad.worker.loop import ModelLoop
from naiad.worker.runtime import Runtime

MEBIBYTE = 1 << 20
LIMITS = ArenaLimits(MEBIBYTE, MEBIBYTE, 64 * MEBIBYTE)
_NAMES = {np.dtype(np.float32): "FP32", np.dtype(np.uint8): "UINT8", np.dtype(np.int32): "INT32"}


class EndedError(BaseException):
    """What ends the thread of a worker that would end its process; `why` is None when the server was gone."""

    def __init__(self, why: BaseException | None) -> None:
        super().__init__(why)
        self.why = why


def _end(why: BaseException | None) -> None:
    raise EndedError(why)


class WorkerPeer:
    """Sends frames as the server does and keeps what comes until it is asked for. For one thread of the test."""

    def __init__(self, control: socket.socket, descriptors: socket.socket) -> None:
        control.settimeout(10)
        self.mapping = Mapping(writable=True)
        self.arena = Arena(LIMITS, self._announce, lambda segment: self.say(Kind.SEGMENT_GONE, segment))
        self._control = control
        self._descriptors = descriptors
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._last_id = 0

    # To the worker.

    def say(self, kind: Kind, frame_id: int = 0, message: Any = None, **more: Any) -> None:
        self._control.sendall(pack(kind, frame_id, b"" if message is None else json.dumps(message).encode(), **more))

    def place(self, *arrays: np.ndarray, names: str = "XYZ") -> tuple[list[Any], Block]:
        """Return the messages of arrays, and the block that they were written to."""
        blobs = [item.tobytes() for item in arrays]
        block = self.arena.allocate(sum(len(blob) for blob in blobs))
        view, offset, messages = self.arena.view(block), 0, []
        for name, item, blob in zip(names, arrays, blobs):
            view[offset : offset + len(blob)] = blob
            messages.append((name, _NAMES[item.dtype], list(item.shape), offset, len(blob)))
            offset += len(blob)
        return messages, block

    def execute(self, *arrays: np.ndarray, **more: Any) -> tuple[int, Block]:
        """Send a batch of one request for each array, its input X; return the first id and the block. `more` goes into each."""
        messages, block = self.place(*arrays, names="X" * len(arrays))
        first = self._last_id + 1
        self._last_id += len(arrays)
        requests = [{"inputs": [message], "outputs": ["Y"], **more} for message in messages]
        self.say(Kind.EXECUTE, first, requests, block=block)
        return first, block

    def respond(self, call: Frame, *arrays: np.ndarray, flags: int = 0, **more: Any) -> Block:
        """Answer a CALL by one response with outputs X, Y, Z; return its block."""
        messages, block = self.place(*arrays) if arrays else ([], NO_BLOCK)
        self.say(Kind.CALL_RESPONSE, call.id, {"outputs": messages, **more}, block=block, flags=flags)
        return block

    def release(self, frame: Frame) -> None:
        """Give a worker's block back."""
        self._control.sendall(pack(Kind.RELEASE, 0, pack_blocks([(frame.segment, frame.offset)])))

    # From the worker.

    def next_frame(self) -> Frame:
        """Return the next frame that isn't about memory or the log."""
        return self.wait(lambda frame: frame.kind not in (Kind.SEGMENT, Kind.SEGMENT_GONE, Kind.RELEASE, Kind.LOG))

    def wait(self, is_wanted: Callable[[Frame], bool] | Kind) -> Frame:
        """Return the first frame of a kind, or that `is_wanted`, and keep the others."""
        is_it = (lambda frame: frame.kind == is_wanted) if isinstance(is_wanted, Kind) else is_wanted
        while True:
            for index, frame in enumerate(self._frames):
                if is_it(frame):
                    return self._frames.pop(index)
            self.receive()

    def receive(self) -> None:
        """Wait for what comes next and keep it. Raises AssertionError when the worker has ended."""
        data = self._control.recv(1 << 18)
        assert data, f"the worker has ended; unread: {self._frames}"
        for frame in self._reader.feed(data):
            if frame.kind == Kind.SEGMENT:
                _, fds, _, _ = socket.recv_fds(self._descriptors, 1, 1)
                self.mapping.add(frame.id, fds[0], frame.size)
            elif frame.kind == Kind.SEGMENT_GONE:
                self.mapping.remove(frame.id)
            self._frames.append(frame)

    def kept(self, kind: Kind) -> list[Frame]:
        """Return the frames of a kind that have come and weren't asked for."""
        return [frame for frame in self._frames if frame.kind == kind]

    def ask(self, kind: Kind, message: Any = None) -> Frame:
        """Ask a question and return its answer."""
        self._last_id += 1
        number = self._last_id
        self.say(kind, number, {} if message is None else message)
        return self.wait(lambda frame: frame.kind in (Kind.DONE, Kind.FAILED) and frame.id == number)

    def sync(self) -> None:
        """Return when the worker's main thread has taken all that was sent before."""
        self.ask(Kind.CHECK_READY)

    def released(self) -> list[tuple[int, int]]:
        """Return the blocks in all RELEASE frames that have come, and give them back to the arena."""
        blocks = [block for frame in self.kept(Kind.RELEASE) for block in unpack_blocks(frame.tail)]
        self._frames = [frame for frame in self._frames if frame.kind != Kind.RELEASE]
        for block in blocks:
            self.arena.release(*block)
        return blocks

    def wait_released(self, block: Block) -> None:
        """Return when the worker has given `block` back; fail when it gives back another one, or twice."""
        while not (blocks := self.released()):
            self.receive()
        assert blocks == [(block.segment, block.offset)]

    def settle(self, frame: Frame, block: Block) -> bool:
        """Return whether a RESULT or RETURNED gives the input block back."""
        if frame.flags & FLAG_RELEASED:
            self.arena.release(block.segment, block.offset)
            return True
        return False

    def outputs(self, frame: Frame, index: int = 0) -> dict[str, np.ndarray]:
        """Return copies of the outputs of a response, for RESULT of the one at `index`."""
        message = json.loads(frame.tail)
        if isinstance(message, list):
            message = message[index]
        data = self.mapping.view(frame.segment, frame.offset, frame.size) if frame.size else memoryview(b"")
        return {item[0]: _array(item, data) for item in message["outputs"]}

    def answer(self, *arrays: np.ndarray, **more: Any) -> list[Any]:
        """Run a batch; return for each request its output Y as a list, or its error's text."""
        self.execute(*arrays, **more)
        return self.said(self.next_frame())

    def said(self, frame: Frame) -> list[Any]:
        """Return what a RESULT or a failed RETURNED says to each request: its Y as a list, None, or its error's text."""
        message = json.loads(frame.tail)
        if frame.kind == Kind.RETURNED:
            return [message["error"][1]]
        self.release(frame) if frame.size else None
        return [
            item["error"][1] if "error" in item else None if "none" in item else self.outputs(frame, index)["Y"].tolist()
            for index, item in enumerate(message)
        ]

    def _announce(self, segment: int, fd: int, size: int) -> None:
        socket.send_fds(self._descriptors, [b"\0"], [fd])
        self.say(Kind.SEGMENT, segment, block=Block(segment, 0, size))


def _array(message: Sequence[Any], data: memoryview) -> np.ndarray:
    _, datatype, shape, offset, size = message
    part = bytes(data[offset : offset + size])
    if datatype == "BYTES":
        count = int(np.prod(shape))
        return bytes_tensor.as_array(bytes_tensor.decode(memoryview(part), count), tuple(shape))
    return np.frombuffer(part, BY_NAME[datatype].numpy).reshape(shape)


class RunningWorker:
    """A worker on a thread. `end` is what has ended it: None after FINALIZE, or the exception."""

    def __init__(self, runtime: Runtime, peer: WorkerPeer, loop: ModelLoop) -> None:
        self.runtime = runtime
        self.peer = peer
        self.loop = loop
        self.end: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the model finalize, unless the worker has ended."""
        if self._thread.is_alive():
            self.peer.say(Kind.FINALIZE)
        self.join()

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            self.end = error


@contextmanager
def connected_runtime(limits: ArenaLimits = LIMITS) -> Iterator[tuple[Runtime, WorkerPeer]]:
    """Connect a runtime, the process's host meanwhile, to a peer."""
    with ExitStack() as sockets:
        pairs = [socket.socketpair() for _ in range(2)]
        for sock in (end for pair in pairs for end in pair):
            sockets.enter_context(sock)
        runtime = Runtime(pairs[0][0], pairs[1][0], limits, _end)
        host.install(runtime)
        try:
            yield runtime, WorkerPeer(pairs[0][1], pairs[1][1])
        finally:
            # What the model still holds speaks to nobody.
            runtime.abandon()
            host.install(FakeHost())


@contextmanager
def running_worker(
    model_class: type[Any], *, is_decoupled: bool = False, outputs: Sequence[str] = ("Y",), limits: ArenaLimits = LIMITS
) -> Iterator[RunningWorker]:
    """Run a worker whose model has been initialized; it is finalized at the end, if it still runs."""
    with connected_runtime(limits) as (runtime, peer):
        worker = RunningWorker(runtime, peer, ModelLoop(runtime, lambda _: model_class))
        worker.start()
        try:
            for kind, message in (
                (Kind.LOAD, {"name": "m", "version_directory": ""}),
                (
                    Kind.INITIALIZE,
                    {
                        "args": {"model_instance_name": "m_0"},
                        "is_decoupled": is_decoupled,
                        "is_iterative": False,
                        "outputs": list(outputs),
                        "progress": None,
                    },
                ),
            ):
                answer = peer.ask(kind, message)
                assert answer.kind == Kind.DONE, answer.tail.decode()
            yield worker
        finally:
            worker.stop()

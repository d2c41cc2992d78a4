"""Frames go out in order and never block the loop; what comes in is taken in order, in turns of the loop."""

import asyncio
import os
import select
import socket
import time
from types import SimpleNamespace

import pytest
from event_loops import LOOPS, until

from naiad.execution.process.life.child.socket import FrameSocket
from naiad.memory.segment import create_segment
from naiad.worker.frames import HEADER, MAX_TAIL_BYTES, Frame, FrameReader, Kind, pack


@pytest.fixture(params=LOOPS)
def run(request):
    return LOOPS[request.param]


class Handler:
    """Notes what comes; `work_s` is how long a frame takes."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.broken: list[str] = []
        self.ends = 0
        self.work_s = 0.0

    def on_frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        end = time.monotonic() + self.work_s
        while time.monotonic() < end:
            pass

    def on_broken(self, text: str) -> None:
        self.broken.append(text)

    def on_end(self) -> None:
        self.ends += 1

    @property
    def ids(self) -> list[int]:
        return [frame.id for frame in self.frames]


class Peer:
    """The worker's ends, blocking."""

    def __init__(self, control: socket.socket, descriptors: socket.socket) -> None:
        self.control, self.descriptors = control, descriptors
        self._reader = FrameReader()

    def waiting(self) -> list[Frame]:
        """Return the frames that have come."""
        frames: list[Frame] = []
        while select.select([self.control], [], [], 0)[0]:
            frames += self._reader.feed(self.control.recv(1 << 20))
        return frames

    def close(self) -> None:
        self.control.close()
        self.descriptors.close()


def connect() -> SimpleNamespace:
    """Return a socket on the running loop, its handler and its peer."""
    ours, theirs = socket.socketpair()
    our_descriptors, their_descriptors = socket.socketpair()
    ours.setblocking(False)
    our_descriptors.setblocking(False)
    handler = Handler()
    frames = FrameSocket(ours, our_descriptors, asyncio.get_running_loop(), handler)
    return SimpleNamespace(socket=frames, handler=handler, peer=Peer(theirs, their_descriptors))


def on_bench(work):
    """Make `work(bench)` a coroutine that leaves nothing open."""

    async def main():
        bench = connect()
        try:
            await work(bench)
        finally:
            bench.socket.close()
            bench.peer.close()

    return main()


def test_frames_are_sent_at_once(run):
    async def work(bench):
        bench.socket.send(pack(Kind.CHECK_READY, 1))
        bench.socket.send(pack(Kind.CHECK_READY, 2), pack(Kind.CHECK_READY, 3, b"tail"))
        assert [(frame.id, frame.tail) for frame in bench.peer.waiting()] == [(1, b""), (2, b""), (3, b"tail")]

    run(on_bench(work))


def test_what_may_wait_goes_with_the_next_frame(run):
    async def work(bench):
        bench.socket.send_later(pack(Kind.CREDIT, 1))
        bench.socket.send_later(pack(Kind.CREDIT, 2))
        assert bench.peer.waiting() == []
        bench.socket.send(pack(Kind.CHECK_READY, 3))
        assert [frame.id for frame in bench.peer.waiting()] == [1, 2, 3]
        await asyncio.sleep(0)
        assert bench.peer.waiting() == []

    run(on_bench(work))


def test_what_may_wait_goes_at_the_end_of_the_turn(run):
    async def work(bench):
        bench.socket.send_later(pack(Kind.CREDIT, 1))
        bench.socket.send_later(pack(Kind.CREDIT, 2))
        await asyncio.sleep(0)
        assert [frame.id for frame in bench.peer.waiting()] == [1, 2]

    run(on_bench(work))


def test_a_peer_that_doesnt_read_holds_nobody_up_and_gets_all_in_order_later(run):
    async def work(bench):
        tail = bytes(50_000)
        for number in range(1, 41):
            bench.socket.send(pack(Kind.EXECUTE, number, tail))
            bench.socket.send_later(pack(Kind.CREDIT, 1000 + number))
        assert bench.socket.queued_bytes > 1_000_000
        got: list[int] = []

        def read() -> bool:
            got.extend(frame.id for frame in bench.peer.waiting())
            return len(got) == 80

        await until(read)
        assert got == [number for index in range(1, 41) for number in (index, 1000 + index)]
        assert bench.socket.queued_bytes == 0
        bench.socket.send(pack(Kind.CHECK_READY, 99))
        assert [frame.id for frame in bench.peer.waiting()] == [99]

    run(on_bench(work))


def test_the_descriptor_of_a_segment_is_there_before_its_frame(run):
    async def work(bench):
        fd = create_segment(8192)
        bench.socket.send_later(pack(Kind.CREDIT, 1))
        bench.socket.send_segment(7, fd, 8192)
        inode = os.fstat(fd).st_ino
        os.close(fd)
        frames = bench.peer.waiting()
        assert [(frame.kind, frame.id, frame.size) for frame in frames] == [(Kind.CREDIT, 1, 0), (Kind.SEGMENT, 7, 8192)]
        _, fds, _, _ = socket.recv_fds(bench.peer.descriptors, 1, 1)
        assert os.fstat(fds[0]).st_ino == inode
        os.close(fds[0])

    run(on_bench(work))


def test_a_peer_that_never_takes_descriptors_is_broken(run):
    async def work(bench):
        fd = create_segment(4096)
        for number in range(100_000):
            bench.socket.send_segment(number, fd, 4096)
            if bench.handler.broken:
                break
        os.close(fd)
        assert bench.handler.broken == ["it takes no descriptors of shared memory"]

    run(on_bench(work))


def test_a_received_descriptor_isnt_inherited_and_one_that_is_missing_is_told(run):
    async def work(bench):
        assert bench.socket.receive_descriptor() is None
        fd = create_segment(4096)
        socket.send_fds(bench.peer.descriptors, [b"\0"], [fd])
        got = bench.socket.receive_descriptor()
        assert os.fstat(got).st_ino == os.fstat(fd).st_ino
        assert not os.get_inheritable(got)
        os.close(got)
        os.close(fd)
        bench.peer.descriptors.send(b"\0")
        assert bench.socket.receive_descriptor() is None
        bench.peer.descriptors.close()
        assert bench.socket.receive_descriptor() is None

    run(on_bench(work))


def test_received_frames_are_taken_in_order_however_they_come(run):
    async def work(bench):
        stream = b"".join(pack(Kind.RESULT, number, b"x" * number) for number in range(1, 20))
        for start in range(0, len(stream), 37):
            bench.peer.control.send(stream[start : start + 37])
            await asyncio.sleep(0)
        await until(lambda: len(bench.handler.frames) == 19)
        assert bench.handler.ids == list(range(1, 20))
        assert [len(frame.tail) for frame in bench.handler.frames] == list(range(1, 20))

    run(on_bench(work))


def test_many_frames_are_taken_over_many_turns(run):
    async def work(bench):
        bench.handler.work_s = 0.002
        bench.peer.control.send(b"".join(pack(Kind.RESULT, number) for number in range(10)))
        longest, before = 0, 0
        while len(bench.handler.frames) < 10:
            await asyncio.sleep(0)
            longest, before = max(longest, len(bench.handler.frames) - before), len(bench.handler.frames)
        # A turn of this coroutine may see the loop's reader and its continuation.
        assert longest <= 2
        assert bench.handler.ids == list(range(10))

    run(on_bench(work))


def test_the_end_is_told_once_after_what_came_before_it(run):
    async def work(bench):
        bench.peer.control.send(pack(Kind.RESULT, 1))
        bench.peer.control.close()
        await until(lambda: bench.handler.ends)
        assert (bench.handler.ids, bench.handler.ends) == ([1], 1)
        bench.socket.send(pack(Kind.CHECK_READY, 2))
        bench.socket.send_later(pack(Kind.CREDIT, 2))
        bench.socket.drain()
        await asyncio.sleep(0)
        assert (bench.handler.ends, bench.handler.broken, bench.socket.queued_bytes) == (1, [], 0)

    run(on_bench(work))


def test_a_stream_that_isnt_of_frames_is_broken(run):
    async def work(bench):
        bench.peer.control.send(HEADER.pack(MAX_TAIL_BYTES + 1, 99, 0, 0, 0, 0, 0, 0))
        await until(lambda: bench.handler.broken)
        bench.peer.control.send(pack(Kind.RESULT, 1))
        bench.socket.drain()
        assert bench.handler.broken == [
            f"a frame of kind 99 has a tail of {MAX_TAIL_BYTES + 1} bytes, at most {MAX_TAIL_BYTES} are possible"
        ]
        assert bench.handler.frames == []

    run(on_bench(work))


def test_what_was_sent_before_a_death_is_taken(run):
    async def work(bench):
        bench.peer.control.send(b"".join(pack(Kind.RESULT, number) for number in range(100)))
        bench.socket.drain()
        assert bench.handler.ids == list(range(100))

    run(on_bench(work))


def test_draining_ends_although_somebody_goes_on_sending(run):
    async def work(bench):
        frame = pack(Kind.RESULT, 1, bytes(1000))

        def send_more(_: Frame) -> None:
            bench.handler.frames.append(_)
            bench.peer.control.send(frame, socket.MSG_DONTWAIT)

        bench.handler.on_frame = send_more
        bench.peer.control.send(frame)
        bench.socket.drain()
        assert 0 < len(bench.handler.frames) < 10_000

    run(on_bench(work))


def test_a_handler_may_close_the_socket(run):
    async def work(bench):
        bench.handler.on_frame = lambda frame: (bench.handler.frames.append(frame), bench.socket.close())
        bench.peer.control.send(pack(Kind.RESULT, 1) + pack(Kind.RESULT, 2))
        await until(lambda: bench.handler.frames)
        await asyncio.sleep(0.01)
        assert bench.handler.ids == [1]
        bench.socket.close()
        bench.socket.send(pack(Kind.CHECK_READY, 2))
        bench.socket.send_segment(1, 0, 1)

    run(on_bench(work))


def test_closing_drops_what_waits(run):
    async def work(bench):
        bench.socket.send(pack(Kind.EXECUTE, 1, bytes(5_000_000)))
        bench.socket.send_later(pack(Kind.CREDIT, 1))
        assert bench.socket.queued_bytes > 0
        bench.socket.close()
        assert bench.socket.queued_bytes == 0
        await asyncio.sleep(0)

    run(on_bench(work))

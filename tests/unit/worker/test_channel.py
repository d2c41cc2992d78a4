"""Who waits reads: whatever a thread waits for, it wakes when that comes, and frames are never lost or mixed."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import resource
import socket
import threading
from collections.abc import Iterator

import pytest
from worker_peer import EndedError

from naiad.worker.channel import Channel
from naiad.worker.frames import FrameReader, Kind, pack


class Ends:
    """A channel and the other end of its socket. `came` holds the ids of the frames that it took, in order."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.far = far
        self.came: list[int] = []
        self.broken_id = -1
        self.channel = Channel(near, self._dispatch, self._end)

    def tell(self, *ids: int) -> None:
        self.far.sendall(b"".join(pack(Kind.CREDIT, number) for number in ids))

    def read(self, count: int) -> list[tuple[int, bytes]]:
        """Return id and tail of the next `count` frames from the channel."""
        reader, frames = FrameReader(), []
        while len(frames) < count:
            data = self.far.recv(1 << 16)
            assert data
            frames += reader.feed(data)
        return [(frame.id, frame.tail) for frame in frames]

    def wait(self, number: int, timeout_s: float | None = 10) -> bool:
        return self.channel.wait(lambda: number in self.came, timeout_s)

    def _dispatch(self, frame) -> None:
        if frame.id == self.broken_id:
            raise ValueError("broken")
        self.came.append(frame.id)

    def _end(self, why: BaseException | None) -> None:
        raise EndedError(why)


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    far.settimeout(10)
    with near, far:
        yield Ends(near, far)


class Threads:
    """Runs functions on threads and returns what they returned."""

    def __init__(self) -> None:
        self.results: dict[int, object] = {}
        self._threads: list[threading.Thread] = []

    def start(self, work, *arguments) -> None:
        index = len(self._threads)

        def run() -> None:
            try:
                self.results[index] = work(*arguments)
            except BaseException as error:
                self.results[index] = error

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def join(self) -> list[object]:
        for thread in self._threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self._threads)
        return [self.results[index] for index in range(len(self._threads))]


# Waiting.


def test_each_of_many_waiting_threads_wakes_for_what_it_waits_for(ends):
    threads = Threads()
    for number in range(32):
        threads.start(ends.wait, number)
    for number in reversed(range(32)):
        ends.tell(number)
    assert threads.join() == [True] * 32


def test_no_wake_up_is_lost_when_threads_come_and_go(ends):
    """Each of eight threads waits for its next number again and again; the numbers come one at a time or in heaps."""

    def follow(first: int) -> bool:
        return all(ends.wait(number) for number in range(first, 400, 8))

    threads = Threads()
    for first in range(8):
        threads.start(follow, first)
    for number in range(0, 400, 5):
        ends.tell(*range(number, number + 5))
    assert threads.join() == [True] * 8
    assert sorted(ends.came) == list(range(400))


def test_a_reader_that_has_what_it_wants_leaves_the_reading_to_others(ends):
    threads = Threads()
    threads.start(ends.wait, 1)
    threads.start(ends.wait, 2)
    ends.tell(1)
    ends.tell(2)
    assert threads.join() == [True, True]


def test_a_wait_ends_when_its_time_is_up_and_loses_nothing(ends):
    assert ends.wait(1, 0.01) is False
    ends.tell(1, 2)
    assert ends.wait(2, 0.01) is True
    assert ends.came == [1, 2]


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have more than 1,024 open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_wait_with_a_limit_works_on_a_socket_of_any_number(many_files):
    near, far = socket.socketpair()
    with near, far, socket.socket(fileno=fcntl.fcntl(near, fcntl.F_DUPFD_CLOEXEC, 1500)) as high:
        ends = Ends(high, far)
        assert ends.wait(1, 0.01) is False
        ends.tell(1)
        assert ends.wait(1, 10) is True


def test_a_wait_whose_time_is_up_leaves_the_reading_to_others(ends):
    threads = Threads()
    threads.start(ends.wait, 9, 0.02)
    threads.start(ends.wait, 1)
    assert threads.results.get(0) is None
    threads._threads[0].join(10)
    ends.tell(1)
    assert threads.join() == [False, True]


def test_a_condition_that_raises_leaves_the_channel_usable(ends):
    with pytest.raises(KeyError):
        ends.channel.wait(lambda: {}["x"])
    ends.tell(1)
    assert ends.wait(1)


def test_poll_takes_what_is_there_and_does_not_wait(ends):
    ends.channel.poll()
    assert ends.came == []
    ends.tell(1, 2)
    ends.channel.poll()
    assert ends.came == [1, 2]


def test_poll_leaves_the_socket_to_the_thread_that_reads(ends):
    threads = Threads()
    threads.start(ends.wait, 2)
    while not ends.channel._has_reader:
        pass
    ends.channel.poll()
    ends.tell(1, 2)
    assert threads.join() == [True]


# The end.


def test_the_end_of_the_server_ends_whoever_reads(ends):
    ends.tell(1)
    ends.far.shutdown(socket.SHUT_WR)
    with pytest.raises(EndedError) as ended:
        ends.wait(2)
    assert ended.value.why is None
    assert ends.came == [1]


def test_sending_to_a_server_that_is_gone_ends_the_worker(ends):
    ends.far.close()
    with pytest.raises(EndedError) as ended:
        ends.channel.send(pack(Kind.LOG, 0))
    assert ended.value.why is None


def test_a_frame_that_cannot_be_taken_ends_the_worker_with_the_reason(ends):
    ends.broken_id = 2
    ends.tell(1, 2, 3)
    with pytest.raises(EndedError) as ended:
        ends.wait(3)
    assert isinstance(ended.value.why, ValueError)


def test_a_stream_that_is_none_of_frames_ends_the_worker(ends):
    ends.far.sendall(b"\xff" * 100)
    with pytest.raises(EndedError) as ended:
        ends.channel.poll()
    assert "has a tail of" in str(ended.value.why)


# Sending.


def test_frames_of_many_threads_stay_whole(ends):
    def send(letter: bytes) -> None:
        for number in range(50):
            data = pack(Kind.LOG, number, letter * (number * 97))
            (ends.channel.send if number % 2 else ends.channel.post)(data)

    threads = Threads()
    for letter in (b"a", b"b", b"c", b"d"):
        threads.start(send, letter)
    frames = ends.read(200)
    assert threads.join() == [None] * 4
    assert sorted(frames) == sorted(
        (number, letter * (number * 97)) for letter in (b"a", b"b", b"c", b"d") for number in range(50)
    )


def test_what_a_thread_posts_comes_before_what_it_sends_next(ends):
    """Also when another thread was sending, so that the post had to wait."""
    big = pack(Kind.LOG, 0, b"x" * (4 << 20))
    threads = Threads()
    threads.start(ends.channel.send, big)
    while ends.channel._send_lock.acquire(blocking=False):
        ends.channel._send_lock.release()
    ends.channel.post(pack(Kind.LOG, 1))
    threads.start(ends.channel.send, pack(Kind.LOG, 2))
    assert [number for number, _ in ends.read(3)] == [0, 1, 2]
    threads.join()


class _Posting:
    """A garbage cycle that posts when it is found."""

    def __init__(self, channel: Channel, number: int) -> None:
        self.itself = self
        self.channel = channel
        self.number = number

    def __del__(self) -> None:
        self.channel.post(pack(Kind.LOG, self.number))


@pytest.mark.parametrize("lock", ["mutex", "_send_lock"])
def test_a_post_out_of_a_garbage_collection_takes_no_lock(ends, lock):
    _Posting(ends.channel, 7)
    with getattr(ends.channel, lock):
        gc.collect()
    ends.channel.send(pack(Kind.LOG, 8))
    assert [number for number, _ in ends.read(2)] == [7, 8]


def test_a_thread_that_sends_gets_through_while_others_post_without_end(ends):
    is_over = threading.Event()

    def flood() -> None:
        while not is_over.is_set():
            ends.channel.post(pack(Kind.LOG, 1))

    def drain() -> None:
        while ends.far.recv(1 << 16):
            pass

    threads = Threads()
    threads.start(drain)
    for _ in range(3):
        threads.start(flood)
    for _ in range(20):
        ends.channel.send(pack(Kind.LOG, 2, b"x" * 100_000))
        assert len(ends.channel._outbox) < 1000
    is_over.set()
    for thread in threads._threads[1:]:
        thread.join(10)
    ends.channel._sock.shutdown(socket.SHUT_WR)
    assert threads.join() == [None] * 4


def test_an_abandoned_channel_swallows_posts_and_refuses_the_rest(ends):
    ends.channel.abandon()
    ends.channel.post(pack(Kind.LOG, 0))
    with pytest.raises(OSError, match="Bad file descriptor"):
        ends.channel.send(pack(Kind.LOG, 0))
    assert ends.far.recv(1) == b""


# Event loops.


async def _came(ends: Ends, number: int) -> None:
    # Any thread may take the frame, which wakes no loop by itself.
    while number not in ends.came:  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_a_loop_reads_while_it_is_on_and_as_often_as_it_is(ends):
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ends.channel.read_on(loop)
        ends.channel.read_on(loop)
        ends.channel.leave(loop)
        ends.tell(1)
        await _came(ends, 1)
        ends.channel.leave(loop)
        assert not loop.remove_reader(ends.channel._sock.fileno())

    asyncio.run(main())


def test_loops_of_several_threads_and_plain_threads_read_together(ends):
    async def follow(numbers) -> bool:
        loop = asyncio.get_running_loop()
        ends.channel.read_on(loop)
        for number in numbers:
            await _came(ends, number)
        ends.channel.leave(loop)
        return True

    threads = Threads()
    for first in range(3):
        threads.start(asyncio.run, follow(range(first, 60, 6)))
    for first in range(3, 6):
        threads.start(lambda first=first: all(ends.wait(number) for number in range(first, 60, 6)))
    for number in range(60):
        ends.tell(number)
    assert threads.join() == [True] * 6

"""What a worker writes is cut into lines, however it comes, and read until told, not until the pipe ends."""

import asyncio
import logging
import os
from types import SimpleNamespace

import pytest
from event_loops import LOOPS, until
from hypothesis import given
from hypothesis import strategies as st

from naiad.execution.process.life.child.model_log import MAX_LINE
from naiad.execution.process.life.child.output import LineSplitter, OutputCapture


class Log:
    """Notes what it is given, as `ModelLog` is."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []

    def write_lines(self, level: int, lines: list[bytes]) -> None:
        self.lines.extend((level, line) for line in lines)


@pytest.fixture(params=LOOPS)
def run(request):
    return LOOPS[request.param]


def capture_of(log: Log) -> SimpleNamespace:
    """Return a capture and the writing ends of its pipes."""
    stdout, out = os.pipe()
    stderr, err = os.pipe()
    for fd in (stdout, stderr):
        os.set_blocking(fd, False)
    return SimpleNamespace(
        of=OutputCapture(stdout, stderr, log, asyncio.get_running_loop()), out=out, err=err, fds=(stdout, stderr)
    )


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b" ").rstrip(b"\r"))), st.data())
def test_lines_are_the_same_however_the_stream_is_split(lines, data):
    stream = b"".join(line + b"\n" for line in lines)
    splitter, got = LineSplitter(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += splitter.feed(stream[:size])
        stream = stream[size:]
    assert got + splitter.end() == lines


def test_a_carriage_return_before_the_end_isnt_part_of_the_line():
    assert LineSplitter().feed(b"a\r\nb\rc\n\r\n") == [b"a", b"b\rc", b""]
    splitter = LineSplitter()
    assert splitter.feed(b"a\r") + splitter.feed(b"\nb") + splitter.end() == [b"a", b"b"]


def test_a_line_without_an_end_comes_at_the_end():
    splitter = LineSplitter()
    assert splitter.feed(b"a\nb") == [b"a"]
    assert splitter.end() == [b"b"]
    assert splitter.end() == []


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_longer_than_the_log_takes_comes_in_pieces(end):
    splitter = LineSplitter()
    got = splitter.feed(b"x" * (2 * MAX_LINE + 5) + end) + splitter.end()
    assert [len(line) for line in got] == [MAX_LINE, MAX_LINE, 5]


def test_stdout_is_information_and_stderr_a_warning(run):
    async def main():
        log = Log()
        capture = capture_of(log)
        os.write(capture.out, b"hello\n")
        os.write(capture.err, b"oh\nno")
        await until(lambda: len(log.lines) == 2)
        os.close(capture.out)
        os.close(capture.err)
        await until(lambda: len(log.lines) == 3)
        assert sorted(log.lines) == [(logging.INFO, b"hello"), (logging.WARNING, b"no"), (logging.WARNING, b"oh")]
        assert not any(map(is_open, capture.fds))
        capture.of.finish()

    run(main())


def test_what_is_left_is_read_without_waiting_for_the_end(run):
    async def main():
        log = Log()
        capture = capture_of(log)
        os.write(capture.out, b"last")
        os.write(capture.err, b"words\n" * 10)
        capture.of.finish()
        assert (logging.INFO, b"last") in log.lines
        assert len(log.lines) == 11
        assert not any(map(is_open, capture.fds))
        assert capture.of.tail() == "\n".join(["words"] * 10)
        for fd in (capture.out, capture.err):
            os.close(fd)

    run(main())


def test_the_tail_is_the_end_of_stderr_alone(run):
    async def main():
        capture = capture_of(Log())
        os.write(capture.out, b"not me\n")
        os.write(capture.err, b"".join(b"line %d\n" % number for number in range(50)))
        capture.of.finish()
        assert capture.of.tail().split("\n") == [f"line {number}" for number in range(30, 50)]
        os.close(capture.out)
        os.close(capture.err)

    run(main())


def test_the_tail_is_at_most_two_kib(run):
    async def main():
        capture = capture_of(Log())
        os.write(capture.err, b"\xff" + b"x" * 5000)
        capture.of.finish()
        assert capture.of.tail() == "x" * 2048
        os.close(capture.out)
        os.close(capture.err)

    run(main())

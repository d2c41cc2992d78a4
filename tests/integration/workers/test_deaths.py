"""A worker's death is seen at once, told once with its reason, and what it said before still counts."""

import asyncio
import logging
import os
import signal
from types import SimpleNamespace

import psutil
import pytest
from event_loops import until
from plans import plan
from process_facts import is_alive

from naiad.errors import InferenceServerError
from naiad.execution.process.life.child import exit_watch
from naiad.execution.process.life.death import BrokenWorkerError
from naiad.execution.process.life.start import ImportedWorker, initialize
from naiad.worker.frames import Kind, pack

# What the worker does at the next frame.
AT = "hello()\nnext_frame()\n"
SLEEP = "\ntime.sleep(60)"
UNSEALED = """
fd = os.memfd_create("x")
os.truncate(fd, 4096)
socket.send_fds(descriptors, [b"0"], [fd])
say(Kind.SEGMENT, 1, block=Block(1, 0, 4096))
"""


@pytest.mark.parametrize(
    ("script", "reason", "text"),
    [
        ("os._exit(0)", "exit", "exited with code 0"),
        ("os._exit(3)", "exit", "exited with code 3"),
        ("sys.exit('no more')", "exit", "exited with code 1; the end of its stderr:\nno more"),
        ("raise ValueError('ünï')", "exit", "ValueError: ünï"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal", "was killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "signal", "was killed by SIGTERM"),
        ("os.abort()", "signal", "was killed by SIGABRT; the end of its stderr:\nFatal Python error: Aborted"),
        ("import ctypes; ctypes.string_at(0)", "signal", "was killed by SIGSEGV; the end of its stderr:\nFatal Python error"),
    ],
)
def test_a_death_says_its_reason_to_who_waits_and_to_who_owns_the_worker(with_worker, script, reason, text):
    async def work(worker):
        process = await worker.start(AT + script)
        with pytest.raises(InferenceServerError) as caught:
            await process.ask(Kind.INITIALIZE, {})
        death = await worker.death()
        assert death.reason == reason
        assert text in death.text
        assert f"the worker process of model 'scripted' (scripted_0_0), pid {process.pid}," in death.text
        assert caught.value.message == death.text
        assert process.death == death
        with pytest.raises(InferenceServerError) as later:
            await process.ask(Kind.CHECK_READY, {})
        assert later.value.message == death.text
        await process.stop(10)
        assert worker.deaths == [death]

    with_worker(work)


def test_what_it_sent_before_its_death_is_taken_first(with_worker_on_each_loop):
    async def work(worker):
        send = "for number in range(1000): say(Kind.RESPONSE, number, [number])\nos._exit(1)"
        process = await worker.start(AT + send)
        seen: list[int] = []
        process.hooks = type(process.hooks)(
            worker.on_frame, lambda death: (seen.append(len(worker.frames)), worker.on_death(death))
        )
        process.send(pack(Kind.EXECUTE, 1))
        await worker.death()
        assert seen == [1000]
        assert [frame.id for frame in worker.frames] == list(range(1000))

    with_worker_on_each_loop(work)


def test_an_answer_that_was_sent_before_the_death_is_an_answer(with_worker):
    async def work(worker):
        process = await worker.start("hello(); frame = next_frame(); say(Kind.DONE, frame.id, {'a': 1}); os._exit(1)")
        assert await process.ask(Kind.LOAD, {}) == {"a": 1}
        assert (await worker.death()).reason == "exit"

    with_worker(work)


def test_the_server_may_kill_it_for_a_reason(with_worker):
    async def work(worker):
        process = await worker.start("hello(); time.sleep(60)")
        process.kill("hang", "execute took longer than 2 seconds")
        process.kill("protocol", "too late")
        death = await worker.death()
        assert (death.reason, death.text.split(", ")[-1]) == ("hang", "was killed: execute took longer than 2 seconds")
        process.kill("hang", "again")
        process.send(pack(Kind.EXECUTE, 1))
        process.send_later(pack(Kind.CREDIT, 1))
        await asyncio.sleep(0)

    with_worker(work)


@pytest.mark.parametrize("how", ["", "os.setsid()"], ids=["in its session", "in another session"])
def test_a_grandchild_that_holds_sockets_and_pipes_hides_no_death(with_worker_on_each_loop, how):
    async def work(worker):
        script = f"""
hello()
next_frame()
child = os.fork()
if not child:
    {how or "pass"}
    say(Kind.RESPONSE, os.getpid(), ["ready"])
    time.sleep(60)
time.sleep(60)
"""
        process = await worker.start(script)
        process.send(pack(Kind.EXECUTE, 1))
        await until(lambda: worker.frames)
        grandchild = worker.frames[0].id
        os.kill(process.pid, signal.SIGKILL)
        death = await worker.death()
        assert death.reason == "signal"
        if how:
            os.kill(grandchild, signal.SIGKILL)
        await until(lambda: not is_alive(grandchild))

    with_worker_on_each_loop(work)


def test_a_stop_ends_what_the_worker_has_forked(with_worker):
    async def work(worker):
        fork = "child = os.fork()\nif not child: time.sleep(60)\nsay(Kind.RESPONSE, child, [])\nserve()"
        process = await worker.start("hello()\n" + fork)
        await until(lambda: worker.frames)
        await process.stop(10)
        await until(lambda: not is_alive(worker.frames[0].id))

    with_worker(work)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("control.sendall(b'\\xff' * 100)", "a frame of kind 65535 has a tail of 4294967295 bytes"),
        ("say(Kind.RELEASE, 0); control.sendall(pack(Kind.RELEASE, 0, b'xxx'))", "a RELEASE can't be read"),
        ("control.sendall(pack(Kind.RELEASE, 0, pack_blocks([(9, 64)])))", "a block of segment 9 was released"),
        ("say(Kind.SEGMENT, 1, block=Block(1, 0, 4096))", "segment 1 came without its descriptor"),
        ("say(Kind.SEGMENT_GONE, 5)", "segment 5 was taken back, which isn't there"),
        (UNSEALED, "a segment isn't sealed"),
        ("say(Kind.DONE, 1, [1])", "the tail of a frame of kind 15 isn't a JSON object"),
        ("control.sendall(pack(Kind.FAILED, 1, b'{'))", ""),
        ("say(Kind.LOG, 0, {'level': 'LOUD', 'message': ''})", "a line for the log has the level 'LOUD'"),
        ("say(Kind.LOG, 0, {'level': [], 'message': ''})", "a line for the log has the level []"),
    ],
)
def test_a_worker_that_breaks_the_rules_is_killed_for_it(with_worker, script, text):
    async def work(worker):
        process = await worker.start(AT + script + SLEEP)
        process.send(pack(Kind.EXECUTE, 1))
        death = await worker.death()
        assert death.reason == "protocol"
        assert f"was killed: it sent what no worker sends: {text}" in death.text

    with_worker(work)


@pytest.mark.parametrize("error", [BrokenWorkerError("no such request"), ValueError("no such request")])
def test_who_finds_a_frame_broken_ends_the_worker(with_worker, error):
    async def work(worker):
        def refuse(frame):
            raise error

        process = await worker.start(AT + "say(Kind.RESULT, 1, [])\nsay(Kind.RESULT, 2, [])" + SLEEP)
        process.hooks = type(process.hooks)(refuse, worker.on_death)
        process.send(pack(Kind.EXECUTE, 1))
        death = await worker.death()
        assert (death.reason, death.text.split("sends: ")[1]) == ("protocol", "no such request")

    with_worker(work)


def test_a_worker_that_closes_its_socket_and_lives_on_is_killed(with_worker):
    async def work(worker):
        await worker.start("hello(); control.close(); time.sleep(60)")
        death = await worker.death()
        assert (death.reason, death.text.split("killed: ")[1]) == ("protocol", "it closed its control socket and didn't end")

    with_worker(work)


def test_a_worker_that_stops_reading_holds_nothing_up(with_worker_on_each_loop):
    async def work(worker):
        process = await worker.start("hello(); time.sleep(60)")
        for number in range(100):
            process.send(pack(Kind.EXECUTE, number, bytes(100_000)))
        assert process.queued_bytes > 5_000_000
        process.kill("hang", "it doesn't read")
        await worker.death()
        assert process.queued_bytes == 0

    with_worker_on_each_loop(work)


def test_blocks_go_both_ways_and_come_back(with_worker_on_each_loop):
    async def work(worker):
        script = """
from naiad.memory.arena import Arena, ArenaLimits
from naiad.memory.mapping import Mapping

def announce(segment, fd, size):
    socket.send_fds(descriptors, [b"0"], [fd])
    say(Kind.SEGMENT, segment, block=Block(segment, 0, size))

arena, mapping = Arena(ArenaLimits(), announce, lambda segment: None), Mapping(writable=True)
hello()
while True:
    frame = next_frame()
    if frame.kind == Kind.SEGMENT:
        _, fds, _, _ = socket.recv_fds(descriptors, 1, 1)
        mapping.add(frame.id, fds[0], frame.size)
    elif frame.kind == Kind.EXECUTE:
        data = bytes(mapping.view(frame.segment, frame.offset, frame.size))
        block = arena.allocate(frame.size)
        arena.view(block)[:] = data[::-1]
        say(Kind.RESULT, frame.id, [], block=block)
        control.sendall(pack(Kind.RELEASE, 0, pack_blocks([(frame.segment, frame.offset)])))
"""
        process = await worker.start(script)
        for size in (1, 1000, 3 << 20):
            block = process.arena.allocate(size)
            data = os.urandom(size)
            process.arena.view(block)[:] = data
            process.send(pack(Kind.EXECUTE, size, block=block))
            await until(lambda size=size: worker.frames and worker.frames[-1].id == size and process.arena.block_count == 0)
            frame = worker.frames[-1]
            got = process.mapping.view(frame.segment, frame.offset, frame.size)
            assert got.readonly
            assert bytes(got) == data[::-1]
            del got
        assert worker.rooms == 3

    with_worker_on_each_loop(work)


def test_views_of_a_dead_workers_memory_stay_readable(with_worker):
    async def work(worker):
        script = """
fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
os.write(fd, b"result" + bytes(4090))
import fcntl
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
hello()
socket.send_fds(descriptors, [b"0"], [fd])
say(Kind.SEGMENT, 1, block=Block(1, 0, 4096))
say(Kind.RESULT, 1, [], block=Block(1, 0, 6))
next_frame()
"""
        process = await worker.start(script)
        await until(lambda: worker.frames)
        view = process.mapping.view(1, 0, 6)
        process.kill("hang", "enough")
        await worker.death()
        assert bytes(view) == b"result"
        assert process.mapping.size_bytes == 0

    with_worker(work)


def test_the_arena_is_still_there_when_the_death_is_told(with_worker):
    async def work(worker):
        process = await worker.start("hello(); time.sleep(60)")
        block = process.arena.allocate(100)
        sizes: list[int] = []

        def on_death(death):
            sizes.append(process.arena.used_bytes)
            process.arena.release(block.segment, block.offset)
            worker.on_death(death)

        process.hooks = type(process.hooks)(worker.on_frame, on_death)
        process.kill("hang", "enough")
        await worker.death()
        assert sizes == [128]
        assert process.arena.size_bytes == 0

    with_worker(work)


def test_without_descriptors_of_processes_a_thread_sees_the_death(with_worker_on_each_loop, monkeypatch):
    async def work(worker):
        monkeypatch.setattr(exit_watch.os, "pidfd_open", missing)
        process = await worker.start()
        assert await process.ask(Kind.LOAD, {"a": 1}) == {"a": 1}
        os.kill(process.pid, signal.SIGKILL)
        death = await worker.death()
        assert (death.reason, process.death) == ("signal", death)
        await until(lambda: psutil.Process().num_threads() == threads)

    def missing(pid):
        raise OSError

    threads = psutil.Process().num_threads()
    with_worker_on_each_loop(work)


def test_the_last_words_of_a_dead_worker_are_logged(with_worker, caplog):
    async def work(worker):
        process = await worker.start(AT + "print('working'); sys.stderr.write('bad: \\x1b[1m'); os._exit(4)")
        process.send(pack(Kind.EXECUTE, 1))
        death = await worker.death()
        assert death.text.endswith("exited with code 4; the end of its stderr:\nbad: \x1b[1m")
        await process.stop(0)

    with caplog.at_level(logging.INFO, "naiad.model"):
        with_worker(work)
    assert {"[scripted scripted_0_0] working", "[scripted scripted_0_0] bad: \x1b[1m"} <= set(caplog.messages)


def test_a_model_that_is_to_start_in_a_worker_that_has_died_fails_with_that_death(with_worker):
    async def work(worker):
        process = await worker.start("hello()\nos._exit(3)")
        await worker.death()
        imported = ImportedWorker(process, SimpleNamespace(close=lambda: None))
        made = plan([], [])
        with pytest.raises(InferenceServerError, match=r"failed to initialize model 'm': .* exited with code 3"):
            await initialize(imported, made, made.instances[0])

    with_worker(work)

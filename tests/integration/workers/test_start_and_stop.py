"""A worker process starts within its time or leaves nothing; it stops by itself or is killed."""

import asyncio
import logging

import pytest
from event_loops import until

from naiad.backends.base import WorkerProgram
from naiad.errors import Code, InferenceServerError
from naiad.execution.process.life.death import WorkerIdentity
from naiad.execution.process.life.process import WorkerHooks, WorkerProcess
from naiad.execution.process.life.settings import WorkerSettings
from naiad.worker.frames import VERSION, Kind


def test_a_worker_answers_questions_and_ends_when_asked(with_worker_on_each_loop):
    async def work(worker):
        process = await worker.start()
        assert await process.ask(Kind.LOAD, {"name": "m", "ü": [1, None]}) == {"name": "m", "ü": [1, None]}
        answers = await asyncio.gather(*(process.ask(Kind.CHECK_READY, {"n": number}) for number in range(50)))
        assert [answer["n"] for answer in answers] == list(range(50))
        assert process.resident_bytes() > 1 << 20
        await process.stop(10)
        assert (process.death.reason, process.death.text.split(",")[-1]) == ("exit", " exited with code 0")
        assert (worker.deaths, process.resident_bytes()) == ([], None)
        await process.stop(10)

    with_worker_on_each_loop(work)


def test_many_starts_and_stops_leave_nothing(with_worker_on_each_loop):
    async def work(worker):
        for number in range(8):
            process = await worker.start()
            block = process.arena.allocate(5 << 20)
            process.arena.view(block)[:5] = b"hello"
            if number % 2:
                process.kill("hang", "enough")
            await process.stop(10)

    with_worker_on_each_loop(work)


@pytest.mark.soak
@pytest.mark.timeout(120)
def test_a_hundred_starts_and_stops_leave_nothing(with_worker):
    async def work(worker):
        for _ in range(100):
            process = await worker.start()
            process.arena.allocate(5 << 20)
            await process.stop(10)

    with_worker(work)


async def refusal(start) -> str:
    with pytest.raises(InferenceServerError) as caught:
        await start
    assert caught.value.code is Code.INTERNAL
    return caught.value.message


def test_a_worker_that_says_nothing_is_given_up(with_worker_on_each_loop):
    async def work(worker):
        text = await refusal(worker.start("print('busy', file=sys.stderr, flush=True); time.sleep(60)", start_timeout_s=0.5))
        assert "was killed: it said nothing within 0.5 seconds of its start" in text
        assert worker.deaths == []

    with_worker_on_each_loop(work)


def test_a_worker_that_ends_at_once_tells_why_on_stderr(with_worker):
    async def work(worker):
        text = await refusal(worker.start("raise ModuleNotFoundError('no numpy')"))
        assert "worker process of model 'scripted' (scripted_0_0), pid " in text
        assert "exited with code 1; the end of its stderr:\nTraceback" in text
        assert text.endswith("ModuleNotFoundError: no numpy")
        assert worker.deaths == []

    with_worker(work)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("hello(VERSION + 1); time.sleep(60)", f"it speaks version {VERSION + 1} of the frames, this server {VERSION}"),
        ("hello(python='3.9.18'); time.sleep(60)", "it runs on Python 3.9.18, a model needs Python 3.10 or later"),
        ("say(Kind.HELLO, VERSION, []); time.sleep(60)", "its first frame doesn't say its Python's version: b'[]'"),
        ("control.sendall(b'\\xff' * 1000); time.sleep(60)", "it sent what no worker sends: a frame of kind 65535 has a tail"),
    ],
)
def test_a_worker_that_this_server_cant_use_is_refused(with_worker, script, reason):
    async def work(worker):
        assert f"was killed: {reason}" in await refusal(worker.start(script))

    with_worker(work)


@pytest.mark.parametrize(("mode", "reason"), [(None, "No such file or directory"), (0o644, "Permission denied")])
def test_an_interpreter_that_cant_be_run_is_named(tmp_path, mode, reason):
    path = tmp_path / "python"
    if mode is not None:
        path.write_text("")
        path.chmod(mode)
    program = WorkerProgram(path, False, {}, path, path, path)
    start = WorkerProcess.start(program, WorkerSettings(), WorkerIdentity("m", "1", "m_0_0"), WorkerHooks(print))
    text = asyncio.run(refusal(start))
    assert text == f"the worker process of model 'm' (m_0_0) can't be started with {path}: {reason}"


def test_a_start_that_is_given_up_leaves_nothing(with_worker_on_each_loop):
    async def work(worker):
        start = asyncio.ensure_future(worker.start("print('here', flush=True); time.sleep(60)"))
        await asyncio.sleep(0.05)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    with_worker_on_each_loop(work)


def test_what_the_model_raises_reaches_who_asked_and_the_traceback_the_log(with_worker, caplog):
    async def work(worker):
        script = (
            "serve(initialize=lambda f: say(Kind.FAILED, f.id, {'message': 'ValueError: é', 'traceback': 'T\\n  at é\\n'}))"
        )
        process = await worker.start(script)
        assert await refusal(process.ask(Kind.INITIALIZE, {})) == "ValueError: é"
        assert await process.ask(Kind.CHECK_READY, {"still": "there"}) == {"still": "there"}
        lines = [(record.levelno, record.message) for record in caplog.records if record.name == "naiad.model"]
        assert lines == [(logging.ERROR, "[scripted scripted_0_0] T"), (logging.ERROR, "[scripted scripted_0_0]   at é")]

    with_worker(work)


def test_a_question_has_a_time_limit(with_worker):
    async def work(worker):
        process = await worker.start("serve(initialize=lambda f: time.sleep(0.3))", load_timeout_s=0.1)
        text = await refusal(process.ask(Kind.INITIALIZE, {}))
        what = "(question: initialize, see --worker-load-timeout-secs)"
        assert text == f"model 'scripted' (scripted_0_0) hasn't answered within 0.1 seconds {what}"
        assert await process.ask(Kind.CHECK_READY, {"is": "alive"}) == {"is": "alive"}

    with_worker(work)


def test_an_answer_that_comes_too_late_is_ignored(with_worker):
    async def work(worker):
        script = "serve(check_ready=lambda f: (time.sleep(0.2), say(Kind.DONE, f.id, {})))"
        process = await worker.start(script)
        assert "hasn't answered within 0.05 seconds" in await refusal(process.ask(Kind.CHECK_READY, {}, 0.05))
        assert await process.ask(Kind.LOAD, {"a": 1}) == {"a": 1}

    with_worker(work)


def test_a_finalize_that_takes_too_long_ends_with_the_process(with_worker_on_each_loop, caplog):
    async def work(worker):
        process = await worker.start("serve(finalize=lambda f: time.sleep(60))")
        await process.stop(0.3)
        assert (process.death.reason, worker.deaths) == ("stopped", [])
        assert "model 'scripted' (scripted_0_0) hasn't ended within 0.3 seconds: its process is killed" in caplog.text

    with_worker_on_each_loop(work)


def test_a_finalize_that_raises_is_told_and_the_process_ends(with_worker, caplog):
    async def work(worker):
        process = await worker.start("serve(finalize=lambda f: say(Kind.FAILED, f.id, {'message': 'boom', 'traceback': ''}))")
        await process.stop(10)
        assert process.death.text.endswith("exited with code 0")
        assert "finalize of model 'scripted' (scripted_0_0) failed: boom" in caplog.text

    with_worker(work)


def test_a_death_during_finalize_ends_the_stop(with_worker, caplog):
    async def work(worker):
        process = await worker.start("serve(finalize=lambda f: os._exit(5))")
        await process.stop(10)
        assert (process.death.reason, worker.deaths) == ("exit", [])
        assert "exited with code 5" in caplog.text

    with_worker(work)


def test_stopping_at_once_needs_no_answer(with_worker):
    async def work(worker):
        process = await worker.start("hello(); time.sleep(60)")
        await asyncio.gather(process.stop(0), process.stop(0))
        assert process.death.reason == "stopped"

    with_worker(work)


def test_what_was_said_before_the_end_is_in_the_log_when_stop_returns(with_worker, caplog):
    async def work(worker):
        script = "serve(finalize=lambda f: (print('bye'), sys.stderr.write('no newline'), say(Kind.DONE, f.id, {})))"
        process = await worker.start(script)
        await process.stop(10)

    with caplog.at_level(logging.INFO, "naiad.model"):
        with_worker(work)
    lines = [(record.levelno, record.message) for record in caplog.records if record.name == "naiad.model"]
    assert sorted(lines) == [
        (logging.INFO, "[scripted scripted_0_0] bye"),
        (logging.WARNING, "[scripted scripted_0_0] no newline"),
    ]


def test_lines_of_the_models_logger_keep_their_level(with_worker, caplog):
    async def work(worker):
        levels_said = "'VERBOSE', 'INFO', 'WARNING', 'ERROR'"
        say = f"for level in ({levels_said}): say(Kind.LOG, 0, {{'level': level, 'message': 'm'}})"
        await worker.start(f"hello()\n{say}\nnext_frame()")
        await until(lambda: len(levels()) == 4)

    def levels():
        return [record.levelno for record in caplog.records if record.name == "naiad.model"]

    with caplog.at_level(logging.DEBUG, "naiad.model"):
        with_worker(work)
    assert levels() == [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR]


def test_a_flood_of_output_is_cut_and_counted(with_worker_on_each_loop, caplog):
    size, count = 100, 100_000

    async def work(worker):
        script = f"hello()\nline = 'x' * {size - 1}\nfor _ in range({count}): print(line)\nserve()"
        process = await worker.start(script)
        assert await process.ask(Kind.CHECK_READY, {"is": "served"}) == {"is": "served"}
        await process.stop(10)

    with caplog.at_level(logging.INFO, "naiad.model"):
        with_worker_on_each_loop(work)
    lines = [record.getMessage() for record in caplog.records if record.name == "naiad.model"]
    printed = sum(line.endswith("xxx") for line in lines)
    left_out = sum(int(line.split("] ")[1].split()[0]) for line in lines if "more lines" in line)
    assert 1000 <= printed < count
    assert printed + left_out == count

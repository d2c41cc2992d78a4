"""Every request that an instance takes ends once, whatever its worker does; the scheduler gets the instance back each time."""

from __future__ import annotations

import asyncio

import numpy as np
import orjson
import pytest
from event_loops import run_on_asyncio
from fake_worker import Bench, Probe, small_arena, xy_plan

from naiad.errors import Code, FailureReason, InferenceServerError, internal
from naiad.execution.process.context import WorkerLimits
from naiad.tensor.datatype import FP32
from naiad.worker.api.tensor import Tensor
from naiad.worker.frames import FLAG_FAILED, FLAG_RELEASED, Block, Kind

LARGE = 1 << 19  # So many FP32 are more than the loop copies.


def on_bench(**fields):
    """Make an `async def test(bench)` a test; the instance is closed after it and must have left nothing."""

    def decorate(test):
        async def run() -> None:
            made = dict(fields)
            if made.pop("is_decoupled", False):
                made["plan"] = xy_plan(is_decoupled=True)
            bench = Bench(**made)
            await test(bench)
            bench.pool.run()
            await bench.instance.close()
            assert bench.instance.open_count == 0
            assert bench.process.arena.block_count == 0

        def wrapped() -> None:
            run_on_asyncio(run())

        wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
        return wrapped

    return decorate


def values(probe: Probe) -> list[float]:
    """Return the first element of each answer."""
    return [float(answer.outputs[0].array.flat[0]) for answer in probe.answers]


def assert_failed(probe: Probe, text: str, code: Code = Code.UNAVAILABLE) -> None:
    assert probe.end_count == 1
    assert probe.error is not None
    assert probe.error.code is code
    assert text in probe.error.message


@on_bench()
async def test_a_batch_goes_to_the_worker_and_each_request_gets_its_own_answer(bench):
    probes = [bench.probe(value) for value in (1, 2, 3)]
    bench.submit(*probes, mark=7)
    (execute,) = bench.process.take(Kind.EXECUTE)
    messages = orjson.loads(execute.tail)
    block = np.frombuffer(bench.process.seen.view(execute.segment, execute.offset, execute.size), np.uint8)
    starts = [message["inputs"][0][3] for message in messages]
    assert [float(block[start : start + 4].view(FP32.numpy)[0]) for start in starts] == [1, 2, 3]
    assert bench.done == []
    bench.process.answer(execute)
    assert [values(probe) for probe in probes] == [[1.0], [2.0], [3.0]]
    assert (bench.done, bench.process.broken) == ([7], [])
    assert bench.process.arena.block_count == 0


@on_bench()
async def test_statistics_count_a_batch_once_and_the_requests_that_got_an_answer(bench):
    probes = [bench.probe(), bench.probe(rows=3)]
    bench.submit(*probes)
    (execute,) = bench.process.take(Kind.EXECUTE)
    probes[0].request.cancel()
    outputs, block = bench.process.write(Tensor("Y", np.zeros((3, 2), np.float32)))
    bench.process.push(
        Kind.RESULT, execute.id, [{"outputs": outputs}, {"outputs": outputs}], block=block, value=1000, flags=FLAG_RELEASED
    )
    statistics = bench.statistics
    assert (statistics.execution_count, statistics.inference_count) == (1, 4)
    assert (statistics.per_request.count, statistics.per_request.compute_infer_ns) == (1, 1000)
    assert statistics.per_batch_size[4].compute_infer_ns == 1000


@on_bench()
async def test_a_request_that_was_cancelled_in_the_worker_is_left_alone_by_the_result(bench):
    probes = [bench.probe(value) for value in (1, 2, 3)]
    bench.submit(*probes)
    probes[1].request.cancel()
    (cancel,) = bench.process.take(Kind.CANCEL)
    (execute,) = bench.process.take(Kind.EXECUTE)
    assert cancel.id == execute.id + 1
    bench.process.answer(execute)
    assert [probe.end_count for probe in probes] == [1, 1, 1]
    assert_failed(probes[1], "cancelled", Code.CANCELLED)
    assert values(probes[2]) == [3.0]
    assert bench.done == [0]


@on_bench()
async def test_an_error_in_a_result_fails_its_request_only(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    (execute,) = bench.process.take(Kind.EXECUTE)
    outputs, block = bench.process.write(Tensor("Y", np.ones((1, 2), np.float32)))
    result = [{"error": ["INVALID_ARGUMENT", "no"]}, {"outputs": outputs}]
    bench.process.push(Kind.RESULT, execute.id, result, block=block, flags=FLAG_RELEASED)
    assert_failed(probes[0], "no", Code.INVALID_ARGUMENT)
    assert (values(probes[1]), bench.process.broken) == ([1.0], [])
    assert probes[0].failures == [FailureReason.BACKEND]


@on_bench()
async def test_an_execute_that_raised_fails_every_request_without_an_answer(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    (execute,) = bench.process.take(Kind.EXECUTE)
    bench.process.returned(execute, flags=FLAG_FAILED, message={"error": ["INTERNAL", "boom"]})
    for probe in probes:
        assert_failed(probe, "boom", Code.INTERNAL)
    assert bench.done == [0]
    assert bench.statistics.execution_count == 1


@on_bench()
async def test_none_in_a_result_leaves_the_request_to_its_sender(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    (execute,) = bench.process.take(Kind.EXECUTE)
    outputs, block = bench.process.write(Tensor("Y", np.full((1, 2), 5, np.float32)))
    bench.process.push(
        Kind.RESULT, execute.id, [{"none": True}, {"outputs": outputs}], block=block, flags=FLAG_RELEASED, value=10**9
    )
    assert (probes[0].answers, values(probes[1]), bench.done) == ([], [5.0], [0])
    assert bench.instance.open_count == 1
    bench.process.respond(execute.id, 6, is_final=True)
    assert (values(probes[0]), bench.instance.open_count, bench.zero_counts[-1]) == ([6.0], 0, 0)


@on_bench()
async def test_a_run_is_given_back_once_after_its_last_batch(bench):
    probes = [bench.probe() for _ in range(3)]
    bench.submit_run(*([probe] for probe in probes), mark=4)
    executes = bench.process.take(Kind.EXECUTE)
    for execute in executes[:2]:
        bench.process.answer(execute)
    assert bench.done == []
    bench.process.answer(executes[2])
    assert ([probe.end_count for probe in probes], bench.done) == ([1, 1, 1], [4])


@on_bench()
async def test_batches_that_end_out_of_order_break_the_worker_and_are_not_lost(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit_run(*([probe] for probe in probes), mark=4)
    bench.process.answer(bench.process.take(Kind.EXECUTE)[1])
    assert len(bench.process.broken) == 1
    bench.process.die("protocol")
    assert_failed(probes[0], "exited")
    assert bench.done == [4]
    (again,) = bench.revive().take(Kind.EXECUTE)
    bench.process.answer(again)
    assert probes[1].error is None
    assert [probe.end_count for probe in probes] == [1, 1]


LIES = {
    "no JSON": b"{",
    "no list": {"outputs": []},
    "too few": [],
    "too many": [{"none": True}] * 3,
    "no objects": [1, 2],
    "no outputs": [{}, {}],
    "an error that is none": [{"error": 3}, {"error": ["NO_CODE", "x"]}],
    "an error without text": [{"error": ["INTERNAL", 5]}, {"none": True}],
    "a code that is a list": [{"error": [[], "x"]}, {"none": True}],
    "outside of the block": [{"outputs": [["Y", "FP32", [1, 2], 1 << 40, 8]]}, {"none": True}],
    "a size of its own": [{"outputs": [["Y", "FP32", [1, 2], 0, 9]]}, {"none": True}],
    "parameters that are none": [{"outputs": [["Y", "FP32", [1, 1], 0, 4]], "parameters": [1]}, {"none": True}],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_result_that_lies_breaks_the_worker_and_the_batch_ends_with_it(lie):
    @on_bench()
    async def check(bench):
        probes = [bench.probe(), bench.probe()]
        bench.submit(*probes, mark=3)
        (execute,) = bench.process.take(Kind.EXECUTE)
        _, block = bench.process.write(Tensor("Y", np.zeros((1, 2), np.float32)))
        bench.process.push(Kind.RESULT, execute.id, lie, block=block, flags=FLAG_RELEASED)
        assert len(bench.process.broken) == 1
        bench.process.die("protocol")
        assert [probe.end_count for probe in probes] == [1, 1]
        assert probes[1].failures == [FailureReason.BACKEND]
        assert bench.done == [3]

    check()


@pytest.mark.parametrize("message", [b"", b"[", 5, {}, {"error": "x"}, {"error": ["INTERNAL", 3]}, {"error": None}], ids=repr)
def test_a_failure_that_cannot_be_read_breaks_the_worker_and_the_batch_ends_with_it(message):
    @on_bench()
    async def check(bench):
        probe = bench.probe()
        bench.submit(probe)
        (execute,) = bench.process.take(Kind.EXECUTE)
        bench.process.returned(execute, flags=FLAG_FAILED, message=message)
        assert len(bench.process.broken) == 1
        bench.process.die("protocol")
        assert (probe.end_count, bench.done) == (1, [0])

    check()


@pytest.mark.parametrize("block", [Block(9, 0, 8), Block(1, 1 << 50, 8), Block(1, 0, 1 << 50)], ids=str)
def test_a_result_whose_block_is_nowhere_breaks_the_worker_and_the_batch_ends_with_it(block):
    @on_bench()
    async def check(bench):
        probe = bench.probe()
        bench.submit(probe)
        (execute,) = bench.process.take(Kind.EXECUTE)
        bench.process.write(Tensor("Y", np.zeros(1, np.float32)))
        bench.process.push(Kind.RESULT, execute.id, [{"none": True}], block=block)
        assert len(bench.process.broken) == 1
        bench.process.die("protocol")
        assert (probe.end_count, bench.done) == (1, [0])

    check()


@on_bench()
async def test_a_block_that_is_released_twice_breaks_the_worker_and_the_batch_ends_with_it(bench):
    probe = bench.probe()
    bench.submit(probe)
    (execute,) = bench.process.take(Kind.EXECUTE)
    bench.process.release(execute)
    bench.process.answer(execute)
    assert len(bench.process.broken) == 1
    bench.process.die("protocol")
    assert (probe.end_count, bench.done) == (1, [0])


# Deaths.


@on_bench()
async def test_a_death_fails_what_was_begun_and_keeps_what_was_not(bench):
    begun, waiting = [bench.probe(), bench.probe()], bench.probe(9)
    bench.submit_run(begun, [waiting], mark=2)
    bench.process.die()
    for probe in begun:
        assert_failed(probe, "exited with code 1")
    assert (waiting.end_count, bench.done, bench.owner.states) == (0, [2], ["up", "down"])
    assert bench.instance.open_count == 1
    (execute,) = bench.revive().take(Kind.EXECUTE)
    bench.process.answer(execute)
    assert (waiting.end_count, waiting.error, bench.done) == (1, None, [2])
    assert (bench.instance.open_count, bench.zero_counts[-1]) == (0, 0)


@on_bench()
async def test_what_waits_for_a_worker_fails_when_its_start_fails(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit_run(*([probe] for probe in probes))
    bench.process.die()
    bench.fail_start(bench_error())
    assert_failed(probes[1], "no interpreter")
    assert (bench.done, bench.instance.open_count) == ([0], 0)


@on_bench()
async def test_a_request_cancelled_while_it_waits_for_a_worker_is_not_run(bench):
    probes = [bench.probe() for _ in range(4)]
    bench.submit_run(*([probe] for probe in probes))
    bench.process.die()
    probes[2].request.cancel()
    assert bench.instance.open_count == 2
    executes = bench.revive().take(Kind.EXECUTE)
    assert [execute.id for execute in executes] == sorted(execute.id for execute in executes)
    for execute in executes:
        bench.process.answer(execute)
    assert ([probe.end_count for probe in probes], len(executes)) == ([1] * 4, 2)
    assert bench.process.broken == []


@on_bench()
async def test_cancelled_batches_among_those_that_wait_leave_the_others_in_order(bench):
    probes = [bench.probe() for _ in range(6)]
    follower = bench.probe()
    bench.submit_run(*([probe] for probe in probes[:1]))
    process = bench.process
    bench.instance._process = None  # Nothing can be sent yet.
    for probe in probes[1:]:
        bench.submit(probe)
    probes[3].request.cancel()
    bench.instance._waiting[2].on_done = lambda _: bench.submit(follower)
    bench.instance._process = process
    bench.instance._pump()
    executes = process.take(Kind.EXECUTE)
    assert [execute.id for execute in executes] == [1, 2, 3, 4, 5, 6]
    for execute in executes:
        process.answer(execute)
    assert process.broken == []
    assert [probe.end_count for probe in (*probes, follower)] == [1] * 7


@on_bench(limits=WorkerLimits(retries_on_death=True))
async def test_a_request_whose_worker_died_runs_once_more_alone(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    bench.process.die()
    assert [probe.end_count for probe in probes] == [0, 0]
    [first] = bench.revive().take(Kind.EXECUTE)
    bench.process.answer(first)
    [second] = bench.process.take(Kind.EXECUTE)
    assert second.id != first.id
    bench.process.die()
    assert (probes[0].error, probes[0].end_count) == (None, 1)
    assert_failed(probes[1], "exited")
    assert (bench.owner.poison_count, bench.done) == (1, [0])


@on_bench(limits=WorkerLimits(retries_on_death=True))
async def test_a_retry_that_was_not_begun_stays_the_only_one(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    bench.process.die()
    bench.revive()
    bench.process.die()
    assert_failed(probes[0], "each of the two times")
    assert probes[1].end_count == 0
    bench.revive()
    bench.process.die()
    assert_failed(probes[1], "each of the two times")
    assert bench.owner.poison_count == 2


@on_bench(limits=WorkerLimits(retries_on_death=True))
async def test_a_cancelled_request_is_neither_run_again_nor_poison(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    probes[0].request.cancel()
    bench.process.die()
    (execute,) = bench.revive().take(Kind.EXECUTE)
    probes[1].request.cancel()
    bench.process.die()
    assert ([probe.end_count for probe in probes], bench.owner.poison_count) == ([1, 1], 0)
    assert bench.revive().take(Kind.EXECUTE) == []
    assert execute.id == 3


@on_bench(is_decoupled=True, limits=WorkerLimits(retries_on_death=True))
async def test_an_open_request_without_a_response_runs_once_more_and_one_with_a_response_fails(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit(*probes)
    (execute,) = bench.process.take(Kind.EXECUTE)
    bench.process.returned(execute)
    bench.process.respond(execute.id, 1)
    bench.process.die()
    assert_failed(probes[0], "exited")
    assert probes[1].end_count == 0
    (again,) = bench.revive().take(Kind.EXECUTE)
    bench.process.returned(again)
    bench.process.respond(again.id, 2, is_final=True)
    assert (values(probes[1]), bench.instance.open_count) == ([2.0], 0)


@on_bench(is_decoupled=True)
async def test_a_death_ends_open_streams(bench):
    probe = bench.probe()
    bench.submit(probe)
    (execute,) = bench.process.take(Kind.EXECUTE)
    bench.process.returned(execute)
    bench.process.respond(execute.id, 1)
    assert (bench.done, bench.instance.open_count) == ([0], 1)
    bench.process.die()
    assert_failed(probe, "exited")
    assert (bench.instance.open_count, bench.zero_counts[-1]) == (0, 0)


# Streams.


@on_bench(is_decoupled=True)
async def test_a_stream_that_its_client_gave_up_is_no_longer_open_though_the_model_goes_on(bench):
    probe = bench.probe()
    bench.submit(probe)
    (execute,) = bench.process.take(Kind.EXECUTE)
    bench.process.returned(execute)
    bench.zero_counts.clear()
    probe.request.cancel()
    await turn()
    assert (bench.instance.open_count, bench.zero_counts) == (0, [0])


@on_bench()
async def test_requests_of_a_running_batch_are_the_schedulers_to_count(bench):
    bench.submit(bench.probe(), bench.probe())
    assert bench.instance.open_count == 0


# Large batches.


@on_bench()
async def test_a_large_batch_is_copied_by_a_thread_and_what_comes_after_keeps_its_place(bench):
    probes = [bench.probe(size=LARGE), bench.probe()]
    bench.submit_run(*([probe] for probe in probes))
    assert bench.process.take(Kind.EXECUTE) == []
    bench.pool.run()
    executes = bench.process.take(Kind.EXECUTE)
    assert [execute.id for execute in executes] == [1, 2]
    for execute in executes:
        bench.process.answer(execute)
    assert ([probe.end_count for probe in probes], bench.done) == ([1, 1], [0])


@on_bench()
async def test_a_request_cancelled_during_the_copy_never_reaches_the_worker_alone(bench):
    probe = bench.probe(size=LARGE)
    bench.submit(probe)
    probe.request.cancel()
    bench.pool.run()
    for execute in bench.process.take(Kind.EXECUTE):
        bench.process.answer(execute)
    assert (probe.end_count, bench.done) == (1, [0])
    assert bench.process.arena.block_count == 0


@on_bench()
async def test_a_batch_whose_worker_dies_during_the_copy_goes_to_the_next_worker(bench):
    probes = [bench.probe(size=LARGE), bench.probe()]
    bench.submit_run(*([probe] for probe in probes), mark=5)
    bench.process.die()
    assert bench.done == [5]
    assert bench.instance.open_count == 2
    bench.revive()
    bench.pool.run()
    bench.pool.run()
    executes = bench.process.take(Kind.EXECUTE)
    assert [execute.size > 1 << 20 for execute in executes] == [True, False]
    for execute in executes:
        bench.process.answer(execute)
    assert ([probe.end_count for probe in probes], bench.done) == ([1, 1], [5])
    assert bench.instance.open_count == 0


@on_bench()
async def test_a_batch_in_copy_fails_when_no_worker_comes(bench):
    probe = bench.probe(size=LARGE)
    bench.submit(probe)
    bench.process.die()
    bench.fail_start(bench_error())
    bench.pool.run()
    assert_failed(probe, "no interpreter")
    assert (bench.done, bench.instance.open_count) == ([0], 0)
    assert bench.revive().take(Kind.EXECUTE) == []


# Memory.


@on_bench(arena=small_arena(4096))
async def test_a_batch_that_can_never_fit_is_refused_at_once(bench):
    large, small = bench.probe(size=2000), bench.probe()
    bench.submit_run([large], [small])
    assert_failed(large, "don't fit")
    (execute,) = bench.process.take(Kind.EXECUTE)
    bench.process.answer(execute)
    assert (small.error, bench.done) == (None, [0])


@on_bench(arena=small_arena(4096))
async def test_a_batch_without_room_waits_for_the_one_that_runs(bench):
    probes = [bench.probe(size=900), bench.probe(size=900), bench.probe()]
    bench.submit_run(*([probe] for probe in probes))
    (first,) = bench.process.take(Kind.EXECUTE)
    bench.process.answer(first, size=1)
    (second, third) = bench.process.take(Kind.EXECUTE)
    bench.process.answer(second, size=1)
    bench.process.answer(third, size=1)
    assert ([probe.end_count for probe in probes], bench.done) == ([1, 1, 1], [0])


@on_bench(arena=small_arena(4096))
async def test_a_batch_without_room_goes_on_when_the_worker_lets_inputs_go(bench):
    probes = [bench.probe(size=500), bench.probe(size=400), bench.probe(size=500)]
    bench.submit_run(*([probe] for probe in probes))
    first, second = bench.process.take(Kind.EXECUTE)
    bench.process.answer(first, size=1, is_released=False)
    assert bench.process.take(Kind.EXECUTE) == []
    bench.process.release(first)
    (third,) = bench.process.take(Kind.EXECUTE)
    bench.process.answer(second, size=1)
    bench.process.answer(third, size=1)
    assert ([probe.end_count for probe in probes], bench.done) == ([1, 1, 1], [0])


@on_bench(arena=small_arena(4096))
async def test_a_worker_that_keeps_all_memory_without_work_is_replaced_and_the_batch_goes_to_the_next(bench):
    probes = [bench.probe(size=900), bench.probe(size=900)]
    bench.submit_run(*([probe] for probe in probes))
    (first,) = bench.process.take(Kind.EXECUTE)
    bench.process.answer(first, size=1, is_released=False)
    assert (probes[1].end_count, bench.done, bench.instance.open_count) == (0, [0], 1)
    assert bench.owner.restart_counts == {"memory_limit": 1}
    (second,) = bench.revive().take(Kind.EXECUTE)
    bench.process.answer(second, size=1)
    assert (probes[1].error, bench.instance.open_count) == (None, 0)


@on_bench(arena=small_arena(4096), is_decoupled=True)
async def test_a_batch_is_refused_when_nothing_runs_that_could_make_room_and_the_worker_is_in_use(bench):
    probes = [bench.probe(size=900), bench.probe(size=900)]
    bench.submit_run(*([probe] for probe in probes))
    (first,) = bench.process.take(Kind.EXECUTE)
    bench.process.push(Kind.RETURNED, first.id)
    assert_failed(probes[1], "don't fit")
    assert bench.done == [0]
    bench.process.release(first)
    bench.process.respond(first.id, is_final=True)


# Inputs that can't be sent.


@on_bench()
async def test_a_request_that_cannot_be_put_into_a_frame_fails_alone(bench):
    bad, good = bench.probe(), bench.probe()
    bad.request.id = "\ud800"
    bench.submit_run([bad], [good])
    assert_failed(bad, "UTF-8", Code.INVALID_ARGUMENT)
    (execute,) = bench.process.take(Kind.EXECUTE)
    bench.process.answer(execute)
    assert (good.error, bench.done) == (None, [0])


# The end.


@on_bench()
async def test_close_fails_everything_that_is_still_here(bench):
    running, waiting, copying = bench.probe(), bench.probe(), bench.probe(size=LARGE)
    bench.submit_run([running], [copying], [waiting])
    await bench.instance.close(is_hurried=True)
    for probe in (running, waiting, copying):
        assert_failed(probe, "was unloaded")
    bench.pool.run()
    assert (bench.done, bench.instance.open_count) == ([0], 0)
    assert bench.process.stops == [0]
    bench.host.waits.add("m", bench.instance)


@on_bench()
async def test_close_fails_what_waits_for_a_worker(bench):
    probes = [bench.probe(), bench.probe()]
    bench.submit_run(*([probe] for probe in probes))
    bench.process.die()
    await bench.instance.close()
    assert_failed(probes[1], "was unloaded")
    bench.host.waits.add("m", bench.instance)


@on_bench(limits=WorkerLimits(execution_timeout_s=3600))
async def test_a_batch_that_takes_too_long_kills_its_worker(bench):
    probe = bench.probe()
    bench.submit(probe)
    bench.instance._on_hang(3600)
    assert_failed(probe, "3600 seconds")


async def turn() -> None:
    """Let the loop go once round."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def bench_error() -> InferenceServerError:
    return internal("no interpreter")

"""An instance ends each request of a batch exactly once: in place or on a thread, together or, after a failure, alone."""

import asyncio
import threading

import numpy as np
import pytest
from fake_execution import Probe
from plans import plan, tensor
from sequence_plans import STATE, sequence_plan

from naiad.config.plan import ModelPlan
from naiad.errors import Code, FailureReason, InferenceServerError, invalid_argument
from naiad.execution.placement import Placement, PlacementMode, TurnBudget
from naiad.execution.tensors import BatchTensors
from naiad.execution.thread import ExecutionContext, ThreadInstance
from naiad.execution.threads import ThreadPool
from naiad.observability.statistics import ModelStatistics
from naiad.request.batch import Batch

PLAN = plan([tensor("X", "FP32", [1], 8)], [tensor("Y", "FP32", [1], 8)], 8)


class Doubling:
    """Y = 2 X. Refuses a batch with a negative value; notes the size and the thread of each execution."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.threads: set[threading.Thread] = set()
        self.wrong_rows = 0
        self.gate: threading.Event | None = None

    def execute(self, inputs, outputs):
        self.sizes.append(len(inputs["X"]))
        self.threads.add(threading.current_thread())
        if self.gate is not None:
            self.gate.wait(5)
        if (inputs["X"] < 0).any():
            raise ValueError("negative")
        return {"Y": np.repeat(inputs["X"] * 2, 1, axis=0)[self.wrong_rows :]}

    def close(self) -> None:
        pass


class Bench:
    """An instance on a running loop."""

    def __init__(self, mode: PlacementMode, plan: ModelPlan = PLAN) -> None:
        loop = asyncio.get_running_loop()
        self.backend = Doubling()
        self.statistics = ModelStatistics()
        self.pool = ThreadPool(2, loop)
        context = ExecutionContext(
            plan, BatchTensors(PLAN), self.statistics, Placement(mode), self.pool, TurnBudget(loop.call_soon)
        )
        self.instance = ThreadInstance("m_0", self.backend, context)

    async def run(self, *values: float, cancel: tuple[int, ...] = (), is_positional: bool = False) -> list[Probe]:
        """Run one batch of one-item requests and return their probes when the instance is free again."""
        probes = [make(value) for value in values]
        done = asyncio.Event()
        batch = Batch([probe.request for probe in probes], len(probes), is_positional=is_positional)
        self.instance.submit(batch, lambda _: done.set())
        for index in cancel:
            probes[index].request.cancel()
        if self.backend.gate is not None:
            self.backend.gate.set()
        await done.wait()
        self.pool.close()
        return probes


def make(value: float) -> Probe:
    probe = Probe({"X": np.array([[value]], np.float32)})
    probe.request.outputs = ("Y",)
    return probe


def values(probes: list[Probe]) -> list[float | str]:
    return [
        answer.message if isinstance(answer, InferenceServerError) else answer.outputs[0].array.tolist()
        for probe in probes
        for answer in probe.answers
    ]


@pytest.mark.parametrize("mode", [PlacementMode.THREAD, PlacementMode.IN_PLACE])
def test_a_batch_runs_once_and_each_request_gets_its_row(mode):
    async def main():
        bench = Bench(mode)
        return bench, await bench.run(1, 2, 3)

    bench, probes = asyncio.run(main())
    assert values(probes) == [[[2]], [[4]], [[6]]]
    assert bench.backend.sizes == [3]
    assert (threading.main_thread() in bench.backend.threads) is (mode is PlacementMode.IN_PLACE)
    assert (bench.statistics.inference_count, bench.statistics.execution_count) == (3, 1)


@pytest.mark.parametrize("mode", [PlacementMode.THREAD, PlacementMode.IN_PLACE])
def test_a_bad_request_fails_alone(mode):
    async def main():
        bench = Bench(mode)
        return bench, await bench.run(1, -1, 3)

    bench, probes = asyncio.run(main())
    good, bad, also_good = values(probes)
    assert (good, also_good) == ([[2]], [[6]])
    assert "model 'm' failed: ValueError: negative" in bad
    assert probes[1].failures == [FailureReason.BACKEND]
    assert [probe.end_count for probe in probes] == [1, 1, 1]
    assert bench.backend.sizes == [3, 1, 1, 1]


def test_a_failure_counts_as_the_backends():
    async def main():
        bench = Bench(PlacementMode.THREAD)
        return await bench.run(-1)

    (probe,) = asyncio.run(main())
    assert isinstance(probe.error, InferenceServerError)
    assert (probe.error.code, probe.error.reason) == (Code.INTERNAL, FailureReason.BACKEND)


def test_an_error_with_a_code_of_its_own_keeps_it():
    async def main():
        bench = Bench(PlacementMode.THREAD)

        def refuse(inputs, outputs):
            raise invalid_argument("no such word")

        bench.backend.execute = refuse
        return await bench.run(1)

    (probe,) = asyncio.run(main())
    assert probe.error is not None
    assert probe.error.code is Code.INVALID_ARGUMENT
    assert probe.error.message == "model 'm' failed: no such word"


def test_an_output_with_too_few_rows_fails_the_batch_and_says_so():
    async def main():
        bench = Bench(PlacementMode.THREAD)
        bench.backend.wrong_rows = 1
        return await bench.run(1)

    (probe,) = asyncio.run(main())
    assert probe.error is not None
    assert "'Y' has shape [0,1], must be [1,1]" in probe.error.message


def test_a_request_that_is_cancelled_while_it_runs_ends_once_and_the_others_are_answered():
    async def main():
        bench = Bench(PlacementMode.THREAD)
        bench.backend.gate = threading.Event()
        return bench, await bench.run(1, 2, cancel=(0,))

    bench, probes = asyncio.run(main())
    assert probes[0].error is not None
    assert probes[0].error.code is Code.CANCELLED
    assert [probe.end_count for probe in probes] == [1, 1]
    assert values(probes[1:]) == [[[4]]]
    assert bench.statistics.per_request.count == 1


@pytest.mark.parametrize(
    ("cancel", "is_positional", "sizes"), [((0, 1), False, []), ((0,), False, [2]), ((1,), False, [2]), ((0, 1), True, [2])]
)
def test_a_batch_that_all_gave_up_while_it_waited_for_a_thread_runs_only_if_positions_count(cancel, is_positional, sizes):
    async def main():
        bench = Bench(PlacementMode.THREAD)
        busy, done = threading.Event(), asyncio.Event()

        def job():
            busy.wait(5)
            return lambda: None

        bench.pool.submit(job)
        bench.pool.submit(job)
        probes = [make(1), make(2)]
        batch = Batch([probe.request for probe in probes], 2, is_positional=is_positional)
        bench.instance.submit(batch, lambda _: done.set())
        for index in cancel:
            probes[index].request.cancel()
        busy.set()
        await done.wait()
        bench.pool.close()
        return bench, probes

    bench, probes = asyncio.run(main())
    assert bench.backend.sizes == sizes
    assert [probe.end_count for probe in probes] == [1, 1]


def test_a_run_of_batches_is_executed_one_by_one_and_ends_once():
    async def main():
        bench = Bench(PlacementMode.THREAD)
        probes = [make(value) for value in (1, 2, 3)]
        done: list[object] = []
        finished = asyncio.Event()

        def on_done(instance):
            done.append(instance)
            finished.set()

        bench.instance.submit_run([Batch([probe.request], 1) for probe in probes], on_done)
        await finished.wait()
        bench.pool.close()
        return bench, probes, done

    bench, probes, done = asyncio.run(main())
    assert values(probes) == [[[2]], [[4]], [[6]]]
    assert bench.backend.sizes == [1, 1, 1]
    assert len(done) == 1


@pytest.mark.parametrize(
    ("batching", "sizes", "failed"),
    [("direct { }", [3], [True] * 3), (f"direct {{ }} {STATE}", [3, 1, 1, 1], [False, True, False])],
)
def test_positions_mean_something_to_a_model_that_keeps_states_itself_so_it_runs_nobody_alone(batching, sizes, failed):
    async def main():
        bench = Bench(PlacementMode.THREAD, sequence_plan(batching))
        return bench, await bench.run(1, -1, 3, is_positional=True)

    bench, probes = asyncio.run(main())
    assert bench.backend.sizes == sizes
    assert [probe.error is not None for probe in probes] == failed

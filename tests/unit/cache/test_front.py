"""The way of a request through the cache: hits, misses, requests that are the same, and how each of them ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from naiad.cache.base import copy_of
from naiad.cache.front import CacheFront, FrontContext
from naiad.cache.local import LocalCache
from naiad.errors import Code, FailureReason, InferenceServerError, unavailable
from naiad.observability.statistics import ModelStatistics
from naiad.request.request import InferRequest, Sequence
from naiad.request.responder import Responder
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import FP32


class Sink:
    def __init__(self) -> None:
        self.answer: list[float] | None = None
        self.error: InferenceServerError | None = None
        self.id = ""

    def send(self, response, is_final):
        assert (self.answer, self.error) == (None, None)
        assert is_final
        self.answer, self.id = response.outputs[0].array.tolist(), response.id
        response.outputs[0].region = object()
        response.outputs.clear()

    def fail(self, error):
        assert (self.answer, self.error) == (None, None)
        self.error = error

    def when_writable(self, callback):
        return True


class Bench:
    """A front over a model whose requests run when the test says so."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.statistics = ModelStatistics()
        self.queue: list[InferRequest] = []
        self.refusal: InferenceServerError | None = None
        self.soon: list[Callable[[], None]] = []
        self.jobs: list[Callable[[], Callable[[], None]]] = []
        self.idle_count = 0
        self.cache = LocalCache(limit_bytes, self.soon.append)
        self.front = CacheFront(
            self.cache,
            FrontContext("m", "1", self.statistics, self._take, self.jobs.append, self.soon.append, self._on_idle),
        )

    def _take(self, request: InferRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.queue.append(request)
        request.on_cancel = self.queue.remove

    def _on_idle(self) -> None:
        self.idle_count += 1

    def ask(self, value: float = 1, count: int = 1, **more) -> tuple[InferRequest, Sink]:
        sink = Sink()
        array = np.full(count, value, np.float32)
        request = InferRequest({"X": array}, ("Y",), 1, Responder(sink, self.statistics, 0), 0)
        for name, given in more.items():
            setattr(request, name, given)
        self.front.enqueue(request)
        return request, sink

    def run(self) -> InferRequest:
        """Answer the oldest request in the queue with minus its input, in memory that is used for something else then."""
        request = self.queue.pop(0)
        request.on_cancel = None
        array = -request.inputs["X"]
        request.responder.send(InferResponse("m", "1", request.id, [OutputTensor("Y", FP32, array)]))
        array[...] = 99
        return request

    def turn(self) -> None:
        while self.soon or self.jobs:
            if self.soon:
                self.soon.pop(0)()
            else:
                self.jobs.pop(0)()()

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.statistics.success_count, self.statistics.cache_hit_count, self.statistics.cache_miss_count


def backend_error(reason: FailureReason) -> InferenceServerError:
    return InferenceServerError(Code.INTERNAL, "it broke", reason)


def test_the_second_of_two_equal_requests_is_answered_without_the_model():
    bench = Bench()
    _, first = bench.ask(2, id="a")
    bench.run()
    _, second = bench.ask(2, id="b")
    assert (first.answer, second.answer, second.id) == ([-2], [-2], "b")
    assert (bench.queue, bench.counts) == ([], (2, 1, 1))
    assert bench.statistics.cache_miss_ns > 0


def test_what_a_sink_does_with_an_answer_reaches_no_other_request():
    bench = Bench()
    bench.ask()
    bench.run()
    assert [bench.ask()[1].answer for _ in range(3)] == [[-1]] * 3


def test_another_load_of_the_model_finds_nothing_of_the_first():
    bench = Bench()
    bench.ask()
    bench.run()
    other = CacheFront(bench.cache, bench.front._context)
    bench.front, old = other, bench.front
    bench.ask()
    assert len(bench.queue) == 1
    old.close()
    assert len(bench.cache) == 0


def test_a_request_of_a_sequence_runs_each_time():
    bench = Bench()
    for _ in range(2):
        bench.ask(sequence=Sequence(1, True, True))
        bench.run()
    assert (len(bench.cache), bench.counts) == (0, (2, 0, 0))


def test_an_error_is_not_kept():
    bench = Bench()
    _, sink = bench.ask()
    bench.queue.pop().responder.fail(backend_error(FailureReason.BACKEND))
    bench.ask()
    assert (sink.error.message, len(bench.queue), len(bench.cache)) == ("it broke", 1, 0)


def test_an_answer_that_is_too_large_for_the_cache_is_given_and_not_kept():
    bench = Bench(limit_bytes=1000)
    _, sink = bench.ask(3, count=1000)
    bench.run()
    assert (sink.answer, len(bench.cache), bench.front.open_count) == ([-3] * 1000, 0, 0)


def test_equal_requests_in_flight_run_once():
    bench = Bench()
    sinks = [bench.ask(4, id=str(number))[1] for number in range(5)]
    assert (len(bench.queue), bench.front.open_count) == (1, 4)
    bench.run()
    assert [(sink.answer, sink.id) for sink in sinks] == [([-4], str(number)) for number in range(5)]
    assert (bench.counts, bench.front.open_count) == ((5, 4, 1), 0)
    assert bench.idle_count >= 1


@pytest.mark.parametrize("more", [{"priority": 1}, {"timeout_us": 7}])
def test_requests_that_are_scheduled_otherwise_do_not_wait_for_each_other(more):
    bench = Bench()
    bench.ask()
    bench.ask(**more)
    assert len(bench.queue) == 2


def test_who_waits_can_go_without_the_others():
    bench = Bench()
    _, first = bench.ask()
    waiter, gone = bench.ask()
    _, last = bench.ask()
    waiter.cancel()
    assert (gone.error.code, bench.front.open_count) == (Code.CANCELLED, 1)
    bench.run()
    assert (first.answer, last.answer) == ([-1], [-1])


def test_when_the_one_that_runs_goes_the_next_one_runs():
    bench = Bench()
    leader, gone = bench.ask(5)
    others = [bench.ask(5)[1] for _ in range(2)]
    leader.cancel()
    assert (gone.error.code, bench.queue) == (Code.CANCELLED, [])
    bench.turn()
    assert len(bench.queue) == 1
    bench.run()
    assert [sink.answer for sink in others] == [[-5], [-5]]
    assert bench.ask(5)[1].answer == [-5]


def test_when_all_go_nothing_is_left():
    bench = Bench()
    requests = [bench.ask()[0] for _ in range(3)]
    for request in requests:
        request.cancel()
    bench.turn()
    assert (bench.queue, bench.front.open_count, bench.front._flights) == ([], 0, {})


def test_a_failure_of_the_model_is_that_of_all_which_waited():
    bench = Bench()
    sinks = [bench.ask()[1] for _ in range(3)]
    bench.queue.pop().responder.fail(backend_error(FailureReason.BACKEND))
    assert [sink.error.message for sink in sinks] == ["it broke"] * 3
    assert (bench.statistics.failure_counts[FailureReason.BACKEND], bench.front.open_count) == (3, 0)


def test_when_the_one_that_runs_came_too_late_the_others_go_on_each_with_a_time_of_its_own():
    bench = Bench()
    _, late = bench.ask()
    sinks = [bench.ask()[1] for _ in range(2)]
    bench.queue.pop().responder.fail(backend_error(FailureReason.REJECTED))
    bench.turn()
    assert (late.error.message, len(bench.queue)) == ("it broke", 2)
    bench.run()
    bench.run()
    assert [sink.answer for sink in sinks] == [[-1], [-1]]


def test_a_refusal_is_the_callers_to_tell():
    bench = Bench()
    bench.refusal = unavailable("the queue is full")
    with pytest.raises(InferenceServerError, match="the queue is full"):
        bench.ask()
    bench.refusal = None
    assert (bench.front._flights, bench.statistics.failure_count) == ({}, 0)


def test_a_refusal_after_the_first_turn_reaches_the_sink_and_no_failure_counter():
    bench = Bench()
    leader, _ = bench.ask()
    _, waiter = bench.ask()
    leader.cancel()
    bench.refusal = unavailable("the queue is full")
    bench.turn()
    assert waiter.error.message == "the queue is full"
    assert (bench.statistics.failure_counts[FailureReason.OTHER], bench.statistics.refused_count) == (0, 1)
    assert (bench.front._flights, bench.front.open_count) == ({}, 0)


def test_a_large_request_is_hashed_and_its_answer_copied_on_a_thread():
    bench = Bench(limit_bytes=8 << 20)
    _, first = bench.ask(6, count=1 << 19)
    _, second = bench.ask(6, count=1 << 19)
    assert (bench.queue, bench.front.open_count, len(bench.jobs)) == ([], 2, 2)
    bench.turn()
    request = bench.queue.pop(0)
    request.responder.send(InferResponse("m", "1", "", [OutputTensor("Y", FP32, -request.inputs["X"])]))
    assert (first.answer[0], second.answer, len(bench.jobs)) == (-6, None, 1)
    bench.turn()
    assert (second.answer[0], len(bench.cache), bench.front.open_count) == (-6, 1, 0)


def test_one_that_goes_while_it_is_hashed_never_runs():
    bench = Bench(limit_bytes=8 << 20)
    request, sink = bench.ask(count=1 << 19)
    request.cancel()
    bench.turn()
    assert (sink.error.code, bench.queue, bench.front.open_count) == (Code.CANCELLED, [], 0)


def test_waiting_for_the_front_ends_when_nothing_is_held():
    async def main() -> None:
        bench = Bench()
        bench.ask()
        bench.ask()
        waiting = asyncio.ensure_future(bench.front.wait_idle())
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.run()
        await waiting

    asyncio.run(main())


class Keeper(Sink):
    """Remembers what may be said again of the answer."""

    kept = None

    def send(self, response, is_final):
        self.kept = response.kept
        super().send(response, is_final)


def kept_answer(bench: Bench):
    """Return what a hit says of its answer."""
    bench.ask()
    bench.run()
    sink = Keeper()
    request = InferRequest({"X": np.full(1, 1, np.float32)}, ("Y",), 1, Responder(sink, bench.statistics, 0), 0)
    bench.front.enqueue(request)
    return sink.kept


def test_a_kept_answer_may_be_repeated_and_each_time_counts_as_a_hit():
    bench = Bench()
    kept = kept_answer(bench)
    assert (kept.repeat(), kept.repeat(), bench.counts) == (True, True, (4, 3, 1))
    hits = next(family for family in bench.cache.families() if family.name == "nv_cache_num_hits")
    assert hits.samples[0].value == 3


def test_repeating_an_answer_keeps_it_from_going_as_the_least_recently_used():
    bench = Bench(limit_bytes=1800)
    kept = kept_answer(bench)
    bench.ask(2)
    bench.run()
    assert (len(bench.cache), kept.repeat()) == (2, True)
    bench.ask(3)
    bench.run()
    assert (len(bench.cache), kept.repeat()) == (2, True)


def replace(bench: Bench) -> None:
    """Put another answer in the place of the one that is kept."""
    ((generation, key), _), *_ = bench.cache._entries.items()
    bench.cache.insert(generation, key, copy_of([OutputTensor("Y", FP32, np.zeros(1, np.float32))], {}))


@pytest.mark.parametrize("end", [lambda bench: bench.front.close(), lambda bench: bench.front.renew(), replace])
def test_an_answer_that_is_no_longer_the_answer_isn_t_repeated_and_nothing_is_counted(end):
    bench = Bench()
    kept = kept_answer(bench)
    end(bench)
    before = bench.counts
    assert (kept.repeat(), bench.counts) == (False, before)


@pytest.mark.parametrize("reason", [FailureReason.CANCELED, FailureReason.REJECTED])
def test_who_waits_until_nothing_is_held_hears_of_it_when_others_run_in_a_leader_s_place(reason: FailureReason):
    bench = Bench()
    leader, _ = bench.ask()
    bench.ask()
    assert bench.front.open_count == 1
    leader.responder.fail(backend_error(reason))
    bench.turn()
    assert (bench.front.open_count, bench.idle_count, len(bench.queue)) == (0, 1, 2)


def test_who_waits_until_nothing_is_held_hears_of_it_when_a_leader_has_no_answer():
    bench = Bench()
    leader, _ = bench.ask()
    bench.ask()
    leader.responder._sink._sink = Silent()
    leader.responder.send(None)
    assert (bench.front.open_count, bench.idle_count, len(bench.queue)) == (0, 1, 2)


class Silent(Sink):
    def send(self, response, is_final):
        """Take an end without an answer."""


def test_what_may_be_repeated_does_not_keep_an_answer_in_memory_that_the_cache_has_let_go():
    bench = Bench()
    kept = kept_answer(bench)
    (array,) = [weakref.ref(tensor.array) for entry in bench.cache._entries.values() for tensor in entry.tensors]
    bench.cache.forget(bench.front._generation)
    gc.collect()
    assert (array(), kept.repeat()) == (None, False)

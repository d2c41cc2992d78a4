"""What the sequence batcher does and when, on a clock that a test moves: slots, backlog, ends, and what the model is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_execution import FakeInstance, Probe
from manual_clock import ManualClock
from sequence_plans import CONTROLS, STATE, sequence_plan

from naiad.errors import Code, InferenceServerError, internal
from naiad.request.request import InferRequest, Sequence
from naiad.request.response import InferResponse, OutputTensor
from naiad.schedulers.sequence.scheduler import SequenceScheduler
from naiad.tensor.datatype import FP32

MS = 1_000_000
SECOND = 1_000_000_000
DIRECT = f"direct {{ }} {CONTROLS}"
OLDEST = f"oldest {{ }} {CONTROLS}"
BOTH = pytest.mark.parametrize("strategy", [DIRECT, OLDEST], ids=["direct", "oldest"])


class Setup:
    """A scheduler with its clock and instances. `send` enqueues a request of a sequence: "S" starts it, "E" ends it."""

    def __init__(
        self, batching: str = DIRECT, instance_count: int = 1, max_batch_size: int = 4, clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.paddings: list[int] = []
        self.scheduler = SequenceScheduler(self.clock, sequence_plan(batching, max_batch_size), self.paddings.append)
        self.instances = [FakeInstance(f"fake_{number}") for number in range(instance_count)]
        for instance in self.instances:
            self.scheduler.add(instance)
        self.instance = self.instances[0]

    def send(self, sequence_id: int | str, flags: str = "", value: float = 0, size: int = 1, timeout_us: int = 0) -> Probe:
        probe = Probe({"X": np.full((1, size), value, np.float32)})
        probe.request.sequence = Sequence(sequence_id, "S" in flags, "E" in flags)
        probe.request.outputs = ("Y",)
        probe.request.timeout_us = timeout_us
        self.scheduler.enqueue(probe.request)
        return probe

    def refusal(self, *arguments: Any, **more: Any) -> InferenceServerError:
        with pytest.raises(InferenceServerError) as caught:
            self.send(*arguments, **more)
        return caught.value

    def finish(self, instance: FakeInstance | None = None) -> None:
        self.clock.settle()
        (instance or self.instance).finish()
        self.clock.settle()

    def finish_all(self) -> None:
        self.clock.settle()
        while any(instance.is_busy for instance in self.instances):
            for instance in self.instances:
                if instance.is_busy:
                    self.finish(instance)

    def ids(self, instance: FakeInstance | None = None) -> list[list[int]]:
        """Return the ids in each batch, 0 for a position that was filled up."""
        return [[told(request, "CORRID") for request in batch.requests] for batch in (instance or self.instance).batches]


def told(request: InferRequest, name: str) -> int:
    return int(request.inputs[name].item())


# Which requests may come


@BOTH
def test_the_first_request_of_a_sequence_must_start_it(strategy: str) -> None:
    setup = Setup(strategy)
    error = setup.refusal(7)
    assert (error.code, error.message) == (
        Code.INVALID_ARGUMENT,
        "inference request for sequence 7 to model 'm' must specify the START flag on the first request of the sequence",
    )
    setup.send(7, "SE")
    assert setup.refusal(7).code is Code.INVALID_ARGUMENT
    setup.finish_all()


@BOTH
def test_a_request_without_an_id_and_one_of_two_items_are_refused(strategy: str) -> None:
    setup = Setup(strategy)
    with pytest.raises(InferenceServerError, match="must specify a non-zero or non-empty correlation ID"):
        setup.scheduler.enqueue(Probe({"X": np.zeros((1, 1), np.float32)}).request)
    with pytest.raises(InferenceServerError, match="must specify batch-size 1 due to requirements of sequence batcher"):
        setup.scheduler.enqueue(Probe({"X": np.zeros((2, 1), np.float32)}, batch_size=2).request)
    assert setup.scheduler.sequence_count() == 0


@pytest.mark.parametrize(("datatype", "wrong", "right"), [("UINT64", "a", 3), ("INT32", "a", 3), ("STRING", 3, "a")])
def test_an_id_that_the_model_can_not_be_told_is_refused(datatype: str, wrong: int | str, right: int | str) -> None:
    control = f'control_input {{ name: "C" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{datatype} }} }}'
    setup = Setup(f"direct {{ }} {control}")
    assert setup.refusal(wrong, "S").code is Code.INVALID_ARGUMENT
    setup.send(right, "S")
    setup.finish()
    [[request]] = [batch.requests for batch in setup.instance.batches]
    assert request.inputs["C"].item() == (b"a" if right == "a" else 3)


def test_a_number_and_a_text_are_different_ids() -> None:
    setup = Setup("direct { }")
    setup.send(1, "S")
    assert "START" in setup.refusal("1").message
    setup.send("1", "S")
    assert setup.scheduler.sequence_count() == 2
    setup.finish_all()


@pytest.mark.parametrize(("datatype", "expected"), [("INT32", 5), ("UINT32", 5), ("INT64", 2**33 + 5), ("UINT64", 2**33 + 5)])
def test_an_id_too_large_for_its_control_is_told_by_its_low_bits(datatype: str, expected: int) -> None:
    control = f'control_input {{ name: "C" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{datatype} }} }}'
    setup = Setup(f"direct {{ }} {control}")
    setup.send(2**33 + 5, "S")
    setup.finish()
    assert setup.instance.batches[0].requests[0].inputs["C"].item() == expected


# What the model is told


@BOTH
def test_the_model_is_told_start_end_ready_and_id(strategy: str) -> None:
    setup = Setup(strategy)
    for flags in ("S", "", "E"):
        setup.send(9, flags)
    setup.finish_all()
    requests = [batch.requests[0] for batch in setup.instance.batches]
    names = ("START", "END", "READY", "CORRID")
    assert [[told(request, name) for name in names] for request in requests] == [[1, 0, 1, 9], [0, 0, 1, 9], [0, 1, 1, 9]]
    first = requests[0].inputs
    assert [first[name].dtype for name in names] == [np.int32, np.float32, np.bool_, np.uint64]
    assert {first[name].shape for name in names} == {(1, 1)}


def test_without_batching_controls_have_no_batch_dimension() -> None:
    setup = Setup(max_batch_size=0)
    setup.send(9, "S")
    setup.finish()
    assert setup.instance.batches[0].requests[0].inputs["CORRID"].shape == (1,)


def test_a_start_amid_a_sequence_begins_it_again_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.send(9, "S")
    setup.send(9, "S")
    setup.finish_all()
    assert [told(batch.requests[0], "START") for batch in setup.instance.batches] == [1, 1]
    assert setup.scheduler.sequence_count() == 1
    assert "sequence 9 of model 'm' starts again before its end" in caplog.text


# Order and slots


@BOTH
def test_requests_of_a_sequence_run_one_after_the_other_on_one_instance(strategy: str) -> None:
    setup = Setup(strategy, instance_count=2)
    for number in range(4):
        setup.send(9, "S" if number == 0 else "", value=number)
    setup.finish_all()
    assert [batch.requests[0].inputs["X"].item() for batch in setup.instance.batches] == [0, 1, 2, 3]
    assert setup.instances[1].batches == []


def test_new_sequences_take_the_lowest_slot_across_the_instances() -> None:
    setup = Setup(instance_count=2, max_batch_size=2)
    for number in (1, 2, 3, 4):
        setup.send(number, "S")
    setup.finish_all()
    assert [setup.ids(instance) for instance in setup.instances] == [[[1, 3]], [[2, 4]]]


def test_a_position_is_kept_and_holes_below_the_last_are_filled() -> None:
    setup = Setup()
    for number in (1, 2, 3):
        setup.send(number, "S", value=number)
    setup.finish()
    setup.send(3, value=3)
    setup.finish()
    setup.send(1)
    setup.finish()
    assert setup.ids() == [[1, 2, 3], [0, 0, 3], [1]]
    blank = setup.instance.batches[1].requests[0]
    assert [told(blank, name) for name in ("START", "END", "READY")] == [0, 0, 0]
    assert (blank.inputs["X"].tolist(), blank.is_padding, setup.paddings) == ([[0]], True, [2])


def test_requests_of_another_shape_sit_a_round_out() -> None:
    setup = Setup()
    setup.send(1, "S", size=2)
    setup.send(2, "S", size=3)
    setup.send(3, "S", size=2)
    setup.finish_all()
    assert setup.ids() == [[1, 0, 3], [0, 2]]


def test_a_sequence_waits_for_a_slot_and_gets_the_first_that_is_free() -> None:
    setup = Setup(max_batch_size=2)
    for number in (1, 2, 3, 4):
        setup.send(number, "S")
    setup.finish_all()
    assert (setup.ids(), setup.scheduler.backlog_count()) == ([[1, 2]], 2)
    setup.send(2, "E")
    setup.finish_all()
    assert (setup.ids()[1:], setup.scheduler.backlog_count()) == ([[0, 2], [0, 3]], 1)


def test_candidates_of_the_oldest_strategy_are_more_than_a_batch() -> None:
    setup = Setup(f"oldest {{ max_candidate_sequences: 3 preferred_batch_size: 2 }} {CONTROLS}", max_batch_size=2)
    for number in (1, 2, 3, 4):
        setup.send(number, "S")
    setup.finish_all()
    assert (setup.ids(), setup.scheduler.backlog_count()) == ([[1, 2], [3]], 1)


def test_the_oldest_strategy_fills_no_positions() -> None:
    setup = Setup(OLDEST)
    for number in (1, 2, 3):
        setup.send(number, "S")
    setup.finish()
    setup.send(3)
    setup.finish()
    assert (setup.ids(), setup.paddings) == ([[1, 2, 3], [3]], [])


def test_the_oldest_strategy_waits_for_more_within_its_delay() -> None:
    batching = f"oldest {{ preferred_batch_size: 2 max_queue_delay_microseconds: 5000 }} {CONTROLS}"
    setup = Setup(batching)
    setup.send(1, "S")
    setup.clock.advance(4 * MS)
    assert setup.instance.batches == []
    setup.clock.advance(1 * MS)
    assert setup.ids() == [[1]]
    setup.finish()
    setup.send(1)
    setup.send(2, "S")
    setup.finish()
    assert setup.ids() == [[1], [1, 2]]


@pytest.mark.parametrize(("count", "waits"), [(1, True), (2, False)])
def test_the_direct_strategy_waits_for_its_slots_to_fill(count: int, waits: bool) -> None:
    setup = Setup(f"direct {{ max_queue_delay_microseconds: 5000 minimum_slot_utilization: 0.5 }} {CONTROLS}")
    for number in range(count):
        setup.send(number + 1, "S")
    setup.clock.settle()
    assert (setup.instance.batches == []) is waits
    setup.clock.advance(5 * MS)
    assert setup.instance.sizes == [count]


# Ends


@BOTH
def test_the_next_sequence_of_an_id_begins_when_the_one_before_is_over(strategy: str) -> None:
    """Both at once would mix in a model that keeps what it knows by id; and who waits in the backlog comes first."""
    setup = Setup(strategy, instance_count=2, max_batch_size=1)
    setup.send(5, "SE", value=1)
    setup.send(5, "S", value=2)
    setup.send(6, "S")
    setup.clock.settle()
    waiting = setup.send(7, "S")
    assert (setup.ids(), setup.ids(setup.instances[1]), setup.scheduler.backlog_count()) == ([[5]], [[6]], 1)
    setup.finish()
    assert (setup.ids(), setup.scheduler.backlog_count()) == ([[5], [7]], 1)
    setup.send(7, "E")
    setup.finish()
    setup.finish()
    assert setup.ids() == [[5], [7], [7], [5]]
    assert (waiting.error, setup.instance.batches[-1].requests[0].inputs["X"].item()) == (None, 2)
    setup.finish_all()


@BOTH
def test_a_sequence_that_is_given_up_takes_the_next_one_of_its_id_not_with_it(strategy: str) -> None:
    setup = Setup(strategy)
    first, last = setup.send(5, "S"), setup.send(5, "E")
    after = setup.send(5, "S", value=3)
    first.request.cancel()
    setup.finish_all()
    assert [probe.error and probe.error.code for probe in (first, last, after)] == [Code.CANCELLED, Code.CANCELLED, None]
    assert [batch.requests[0].inputs["X"].item() for batch in setup.instance.batches] == [3]


@BOTH
def test_an_idle_sequence_ends_without_a_word_to_the_model(strategy: str) -> None:
    setup = Setup(f"max_sequence_idle_microseconds: 2000000 {strategy}", max_batch_size=1)
    setup.send(1, "S")
    setup.finish()
    waiting = setup.send(2, "S")
    setup.clock.advance(2 * SECOND - 1)
    assert setup.scheduler.backlog_count() == 1
    setup.clock.advance(MS)
    assert setup.ids() == [[1], [2]]
    assert "START" in setup.refusal(1).message
    setup.finish()
    assert waiting.error is None


@BOTH
def test_a_sequence_whose_request_runs_or_waits_is_not_idle(strategy: str) -> None:
    setup = Setup(strategy)
    slow = setup.send(1, "S")
    setup.clock.advance(10 * SECOND)
    setup.finish()
    after = setup.send(1)
    setup.finish()
    assert slow.error is after.error is None


def test_a_sequence_in_the_backlog_waits_for_ever_unless_it_says_otherwise() -> None:
    setup = Setup(max_batch_size=1)
    setup.send(1, "S")
    setup.clock.settle()
    patient, hurried, hurried_too = setup.send(2, "S"), setup.send(3, "S", timeout_us=2_000_000), setup.send(3)
    setup.clock.advance(2 * SECOND)
    assert (patient.answers, setup.scheduler.backlog_count()) == ([], 1)
    for probe in (hurried, hurried_too):
        assert probe.error is not None
        assert (probe.error.code, "timeout of the corresponding sequence has been expired" in probe.error.message) == (
            Code.UNAVAILABLE,
            True,
        )
    assert "START" in setup.refusal(3).message
    setup.send(1, "E")
    setup.finish_all()
    assert patient.error is None


def test_the_next_sequence_of_an_id_keeps_the_time_that_its_requests_may_wait_in_the_backlog() -> None:
    setup = Setup(max_batch_size=1)
    setup.send(1, "S")
    setup.send(1, "E")
    setup.send(2, "S")
    again = setup.send(1, "S", timeout_us=2_000_000)
    setup.finish()
    setup.finish()
    assert (setup.ids(), setup.scheduler.backlog_count()) == ([[1], [1], [2]], 1)
    setup.clock.advance(2 * SECOND)
    assert again.error is not None
    assert "timeout of the corresponding sequence has been expired" in again.error.message


@BOTH
def test_a_cancelled_request_ends_its_sequence_when_its_turn_has_come(strategy: str) -> None:
    setup = Setup(strategy)
    running = setup.send(1, "S")
    setup.clock.settle()
    second, third = setup.send(1), setup.send(1)
    third.request.cancel()
    assert third.error is not None
    assert third.error.code is Code.CANCELLED
    setup.finish()
    assert (running.error, second.answers) == (None, [])
    fourth = setup.send(1)
    setup.finish()
    assert second.error is None
    assert fourth.error is not None
    assert fourth.error.code is Code.CANCELLED
    assert setup.scheduler.sequence_count() == 0
    assert len(setup.instance.batches) == 2


@BOTH
def test_a_cancelled_request_whose_turn_it_is_ends_its_sequence_at_once(strategy: str) -> None:
    setup = Setup(strategy)
    first, second = setup.send(1, "S"), setup.send(1)
    first.request.cancel()
    assert [probe.error and probe.error.code for probe in (first, second)] == [Code.CANCELLED] * 2
    setup.clock.settle()
    assert (setup.instance.batches, setup.scheduler.sequence_count(), setup.scheduler.pending_count()) == ([], 0, 0)


@BOTH
def test_a_failed_request_leaves_its_sequence_as_it_is(strategy: str) -> None:
    setup = Setup(strategy)
    failed = setup.send(1, "S")
    setup.clock.settle()
    setup.instance.fail()
    after = setup.send(1, "E")
    setup.finish()
    assert (failed.error is None, after.error) == (False, None)
    assert setup.scheduler.sequence_count() == 0


# Implicit state


def answer(instance: FakeInstance, *values: float) -> None:
    """End the batch: each request's Y is its value, and its next state 10 times that."""
    [batch] = instance.batches[-1:]
    for request, value in zip(batch.requests, values):
        outputs = [
            OutputTensor(name, FP32, np.full((1, 1), value * factor, np.float32))
            for name, factor in (("Y", 1), ("S_NEXT", 10))
            if name in request.outputs
        ]
        request.responder.send(InferResponse("m", "1", "", outputs))
    on_done, instance._on_done = instance._on_done, None
    assert on_done is not None
    on_done(instance)


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])
def test_the_state_goes_from_request_to_request_and_to_no_client(strategy: str) -> None:
    setup = Setup(f"{strategy} {STATE}")
    probes = [setup.send(1, "S"), setup.send(1), setup.send(1, "S")]
    for value in (3, 4, 5):
        setup.clock.settle()
        answer(setup.instance, value)
    assert [batch.requests[0].inputs["S"].item() for batch in setup.instance.batches] == [0, 30, 0]
    assert [[output.name for output in probe.answers[0].outputs] for probe in probes] == [["Y"]] * 3  # type: ignore[union-attr]


def test_a_client_that_asks_for_the_state_gets_it() -> None:
    setup = Setup(f"direct {{ }} {STATE}")
    probe = Probe({"X": np.zeros((1, 1), np.float32)})
    probe.request.sequence, probe.request.outputs = Sequence(1, True, False), ("S_NEXT",)
    setup.scheduler.enqueue(probe.request)
    setup.clock.settle()
    answer(setup.instance, 3)
    assert [(output.name, output.array.item()) for output in probe.answers[0].outputs] == [("S_NEXT", 30)]  # type: ignore[union-attr]


def test_states_of_sequences_are_their_own() -> None:
    setup = Setup(f"direct {{ }} {STATE}")
    setup.send(1, "S")
    setup.send(2, "S")
    setup.clock.settle()
    answer(setup.instance, 1, 2)
    setup.send(2)
    setup.clock.settle()
    answer(setup.instance, 0, 5)
    setup.send(1)
    setup.send(2)
    setup.clock.settle()
    states = [[request.inputs["S"].item() for request in batch.requests] for batch in setup.instance.batches]
    assert states == [[0, 0], [0, 20], [10, 50]]
    answer(setup.instance, 0, 0)


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])
def test_only_states_of_one_shape_run_together(strategy: str) -> None:
    setup = Setup(f"{strategy} {CONTROLS} {STATE.replace('dims: 1', 'dims: -1')}")

    def answer(*lengths: int) -> None:
        setup.clock.settle()
        for request, length in zip(setup.instance.batches[-1].requests, lengths, strict=True):
            if not request.is_padding:
                state = OutputTensor("S_NEXT", FP32, np.ones((1, length), np.float32))
                request.responder.send(InferResponse("m", "1", "", [state]))
        setup.finish()

    for number in (1, 2, 3):
        setup.send(number, "S")
    answer(1, 4, 1)
    for number in (1, 2, 3):
        setup.send(number)
    setup.clock.settle()
    together = setup.instance.batches[-1].requests
    assert len({request.inputs["S"].shape for request in together}) == 1
    assert not together[0].is_padding
    setup.finish_all()
    assert [request.inputs["S"].shape for request in setup.instance.batches[-1].requests if not request.is_padding] == (
        [(1, 4)] if strategy == "direct { }" else [(1, 1)]
    )


def test_a_failed_request_leaves_the_state_as_it_was() -> None:
    setup = Setup(f"direct {{ }} {STATE}")
    setup.send(1, "S")
    setup.clock.settle()
    answer(setup.instance, 1)
    setup.send(1)
    setup.clock.settle()
    setup.instance.fail()
    setup.send(1)
    setup.clock.settle()
    assert [batch.requests[0].inputs["S"].item() for batch in setup.instance.batches] == [0, 10, 10]
    answer(setup.instance, 0)


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { }"])
def test_a_sequence_ends_with_a_running_request_that_is_given_up(strategy: str) -> None:
    """Its state is lost with the answer: to go on from the one before would be wrong without a word."""
    setup = Setup(f"{strategy} {STATE}")
    probe = setup.send(1, "S")
    setup.clock.settle()
    probe.request.cancel()
    answer(setup.instance, 1)
    assert "START" in setup.refusal(1).message


# Instances that come and go


@BOTH
def test_the_sequences_of_a_dead_instance_end_and_others_take_the_next(strategy: str) -> None:
    setup = Setup(strategy, instance_count=2, max_batch_size=1)
    setup.send(1, "S")
    setup.send(2, "S")
    setup.clock.settle()
    lost = setup.send(1)
    waiting = setup.send(3, "S")
    setup.scheduler.remove(setup.instance)
    assert lost.error is not None
    assert "instance 'fake_0' has ended" in lost.error.message
    assert "START" in setup.refusal(1).message
    setup.finish(setup.instance)
    setup.send(2, "E")
    setup.finish(setup.instances[1])
    setup.finish(setup.instances[1])
    setup.finish(setup.instances[1])
    assert waiting.error is None
    setup.scheduler.add(setup.instance)
    setup.send(4, "S")
    setup.finish_all()
    assert setup.ids(setup.instance)[-1] == [4]


@BOTH
def test_an_instance_that_is_to_go_keeps_its_sequences_until_they_end(strategy: str) -> None:
    setup = Setup(strategy, instance_count=2, max_batch_size=1)
    setup.send(1, "S")
    setup.finish()
    gone: list[bool] = []
    setup.scheduler.remove(setup.instance, lambda: gone.append(True))
    setup.send(2, "S")
    setup.send(3, "S")
    setup.send(1)
    setup.finish()
    assert (setup.ids(), gone, setup.scheduler.backlog_count()) == ([[1], [1]], [], 1)
    setup.send(1, "E")
    setup.finish()
    assert gone == [True]
    setup.finish(setup.instances[1])
    assert setup.ids(setup.instances[1]) == [[2]]


def test_what_is_queued_fails_when_nothing_can_run_it() -> None:
    setup = Setup(max_batch_size=1)
    running = setup.send(1, "S")
    setup.clock.settle()
    probes = [setup.send(1), setup.send(2, "S")]
    setup.scheduler.fail_queued(internal("gone"))
    assert [probe.error and probe.error.message for probe in probes] == ["gone"] * 2
    setup.finish()
    assert running.error is None
    assert (setup.scheduler.sequence_count(), setup.scheduler.pending_count()) == (0, 0)


# Stop and succession


@BOTH
def test_a_stopped_scheduler_takes_no_new_sequence_and_is_idle_without_requests(strategy: str) -> None:
    setup = Setup(strategy)
    setup.send(1, "S")
    setup.clock.settle()
    setup.scheduler.stop()
    idle: list[bool] = []
    setup.scheduler.on_idle(lambda: idle.append(True))
    assert setup.refusal(2, "S").code is Code.UNAVAILABLE
    setup.send(1)
    assert idle == []
    setup.finish_all()
    assert idle == [True]
    assert setup.clock.timer_count() == 0


@BOTH
def test_sequences_end_where_they_began_while_a_successor_takes_the_new_ones(strategy: str) -> None:
    old = Setup(strategy)
    old.send(1, "S")
    old.finish()
    new = Setup(strategy, clock=old.clock)
    new.scheduler.follow(old.scheduler)
    old.scheduler.stop()
    idle: list[bool] = []
    old.scheduler.on_idle(lambda: idle.append(True))
    new.send(1)
    assert "START" in new.refusal(3).message
    old.finish()
    assert (old.ids(), idle) == ([[1], [1]], [])
    new.send(1, "E")
    old.finish()
    assert (old.ids(), idle, new.scheduler._predecessors) == ([[1]] * 3, [True], [])
    assert "START" in new.refusal(1).message


@BOTH
def test_a_sequence_stays_where_it_began_through_several_successors(strategy: str) -> None:
    first = Setup(strategy)
    first.send(1, "S")
    first.finish()
    older, before = first, first
    for _ in range(2):
        latest = Setup(strategy, clock=first.clock)
        latest.scheduler.follow(older.scheduler)
        older.scheduler.stop()
        older, before = latest, older
    assert before is not first
    latest.send(1)
    first.finish()
    latest.send(1, "E")
    first.finish()
    assert (first.ids(), latest.scheduler._predecessors) == ([[1]] * 3, [])
    assert "START" in latest.refusal(1).message


@BOTH
def test_who_waits_for_an_instance_hears_of_it_when_the_model_closes_first(strategy: str) -> None:
    setup = Setup(strategy)
    setup.send(1, "S")
    setup.finish()
    gone: list[bool] = []
    setup.scheduler.remove(setup.instance, lambda: gone.append(True))
    assert gone == []
    setup.scheduler.remove(setup.instance)
    assert (gone, setup.scheduler.sequence_count()) == ([True], 0)


@BOTH
def test_ten_thousand_abandoned_sequences_leave_nothing_and_no_timer(strategy: str) -> None:
    """Case 06: state that only a well-behaved client frees."""
    setup = Setup(strategy, instance_count=2, max_batch_size=1)
    for number in range(10_000):
        setup.send(number + 1, "S")
        if number % 100 == 99:
            for _ in range(50):
                setup.finish_all()
                setup.clock.advance(SECOND)
    scheduler = setup.scheduler
    assert (scheduler.sequence_count(), scheduler.backlog_count(), scheduler.pending_count()) == (0, 0, 0)
    turns, made = setup.clock.turns_run, setup.clock.timers_made
    setup.clock.advance(3600 * SECOND)
    assert setup.clock.turns_run == turns
    assert setup.clock.timers_made <= made + 1
    assert setup.clock.timer_count() == 0


# Iterative sequences

ITERATIVE = "iterative_sequence: true"


def send_plain(setup: Setup) -> Probe:
    probe = Probe({"X": np.zeros((1, 1), np.float32)})
    setup.scheduler.enqueue(probe.request)
    return probe


def finish_again(setup: Setup) -> None:
    """End the batch, all of whose requests the model wants again."""
    setup.clock.settle()
    for request in setup.instance.batches[-1].requests:
        request.is_rescheduled = True
    on_done, setup.instance._on_done = setup.instance._on_done, None
    assert on_done is not None
    on_done(setup.instance)
    setup.clock.settle()


@BOTH
def test_a_request_comes_again_with_those_that_came_meanwhile(strategy: str) -> None:
    setup = Setup(f"{ITERATIVE} {strategy}")
    first = send_plain(setup)
    setup.clock.settle()
    second = send_plain(setup)
    finish_again(setup)
    finish_again(setup)
    assert (first.answers, second.answers, setup.scheduler.sequence_count()) == ([], [], 2)
    setup.finish()
    assert (first.end_count, second.end_count, setup.scheduler.sequence_count()) == (1, 1, 0)
    assert [sorted(ids) for ids in setup.ids()] == [[1], [1, 2], [1, 2]]
    starts = [[told(request, "START") for request in batch.requests] for batch in setup.instance.batches]
    # The same request is in each batch, so that its tensors are those of the last time.
    assert starts[-1] == [0, 0]


@BOTH
def test_a_request_that_nobody_waits_for_does_not_come_again(strategy: str) -> None:
    setup = Setup(f"{ITERATIVE} {strategy}")
    probe = send_plain(setup)
    setup.clock.settle()
    probe.request.cancel()
    finish_again(setup)
    assert (len(setup.instance.batches), setup.scheduler.sequence_count()) == (1, 0)


def test_the_state_of_a_request_that_runs_again_is_taken_once_for_each_answer() -> None:
    setup = Setup(f"{ITERATIVE} direct {{ }} {STATE}")
    probe = Probe({"X": np.zeros((1, 1), np.float32)})
    probe.request.outputs = ("Y",)
    setup.scheduler.enqueue(probe.request)
    setup.clock.settle()
    for step in range(3):
        [request] = setup.instance.batches[-1].requests
        assert request.inputs["S"].item() == step * 10
        output = OutputTensor("S_NEXT", FP32, np.full((1, 1), (step + 1) * 10, np.float32))
        request.responder.send(InferResponse("m", "1", "", [output]), is_final=step == 2)
        if step < 2:
            finish_again(setup)
    assert [len(answer.outputs) for answer in probe.answers] == [0, 0, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize(("datatype", "expected"), [("INT32", 1), ("STRING", b"1")])
def test_the_server_makes_the_id_in_the_kind_of_the_control(datatype: str, expected: object) -> None:
    control = f'control_input {{ name: "C" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{datatype} }} }}'
    setup = Setup(f"{ITERATIVE} direct {{ }} {control}")
    send_plain(setup)
    setup.finish()
    assert setup.instance.batches[0].requests[0].inputs["C"].item() == expected

"""Requests to an ensemble end once, whatever their steps do, and nothing of them stays: calls, places, held models."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import plans
import pytest
from fake_execution import Probe
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.plan import EnsemblePlan, ModelPlan, StepPlan
from naiad.errors import Code, InferenceServerError, RefusedError, cancelled, invalid_argument, not_found
from naiad.observability.statistics import ModelStatistics
from naiad.request.call import InferCall
from naiad.request.request import InferRequest
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse, OutputTensor
from naiad.schedulers.ensemble.scheduler import EnsembleScheduler
from naiad.tensor.datatype import BY_NAME

FP32 = BY_NAME["FP32"]


class FakeCall:
    """One call of a model; what becomes of it is the test's to say."""

    def __init__(self, call: InferCall, sink: ResponseSink) -> None:
        self.call = call
        self.sink = sink
        self.is_over = False

    def cancel(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.sink.fail(cancelled())

    def answer(self, is_final: bool = True) -> None:
        self.is_over = is_final
        array = self.call.inputs[0].array
        assert array is not None
        self.sink.send(InferResponse("m", "1", "", [OutputTensor("Y", FP32, array + 1)], timing=(1, 2, 3, 4)), is_final)

    def end(self) -> None:
        self.is_over = True
        self.sink.send(None, True)

    def fail(self) -> None:
        self.is_over = True
        self.sink.fail(invalid_argument("wrong"))


class FakeMembers:
    """See `Members`. Calls wait in `open`, or with `is_immediate` are answered before they return."""

    def __init__(self, plans_by_name: dict[str, ModelPlan], is_immediate: bool = False) -> None:
        self.plans = plans_by_name
        self.is_immediate = is_immediate
        self.open: list[FakeCall] = []
        self.held = 0
        self.refuses = False

    def hold(self, step: StepPlan, request: InferRequest, namespace: str) -> FakeMember:
        if step.model_name not in self.plans:
            raise not_found("no such model")
        self.held += 1
        return FakeMember(self, self.plans[step.model_name])


class FakeMember:
    def __init__(self, members: FakeMembers, plan: ModelPlan) -> None:
        self.members = members
        self.plan = plan
        self.is_held = True

    def infer(self, call: InferCall, sink: ResponseSink) -> FakeCall:
        assert self.is_held
        if self.members.refuses:
            raise invalid_argument("refused")
        made = FakeCall(call, sink)
        if self.members.is_immediate:
            made.answer()
        else:
            self.members.open.append(made)
        return made

    def let_go(self) -> None:
        assert self.is_held
        self.is_held = False
        self.members.held -= 1


def member(is_decoupled: bool = False) -> ModelPlan:
    io = [plans.tensor("X", "FP32", [-1])], [plans.tensor("Y", "FP32", [-1])]
    return replace(plans.plan(*io), is_decoupled=is_decoupled)


def ensemble(steps: list[tuple[str, str, str]], limit: int = 0, is_decoupled: bool = False) -> ModelPlan:
    """Return an ensemble from X to Y of steps (model, tensor in, tensor out)."""
    made = tuple(StepPlan(name, "", (("X", before),), {"Y": after}) for name, before, after in steps)
    plan = replace(member(), name="e", ensemble=EnsemblePlan(made, limit), is_decoupled=is_decoupled)
    assert plan.ensemble is not None
    return plan


CHAIN = [("m", "X", "a"), ("m", "a", "b"), ("m", "b", "Y")]
FAN = [("m", "X", "a"), ("m", "a", "Y"), ("m", "a", "unwanted"), ("m", "unwanted", "too")]
STREAM = [("many", "X", "a"), ("m", "a", "Y")]


class World:
    def __init__(self, steps: list[tuple[str, str, str]], limit: int = 0, is_immediate: bool = False) -> None:
        names = {name for name, _, _ in steps}
        self.members = FakeMembers({"m": member(), "many": member(is_decoupled=True)}, is_immediate)
        self.statistics = ModelStatistics()
        self.scheduler = EnsembleScheduler(ensemble(steps, limit, "many" in names), self.members, self.statistics)
        self.probes: list[Probe] = []

    @property
    def open(self) -> list[FakeCall]:
        self.members.open = [call for call in self.members.open if not call.is_over]
        return self.members.open

    def ask(self) -> Probe:
        probe = Probe({"X": np.zeros(2, np.float32)})
        probe.request.outputs = ("Y",)
        self.probes.append(probe)
        self.scheduler.enqueue(probe.request)
        return probe

    def check_empty(self) -> None:
        assert [probe.end_count for probe in self.probes] == [1] * len(self.probes)
        assert (self.members.held, self.scheduler.pending_count(), self.open) == (0, 0, [])
        assert self.scheduler._open == [0] * len(self.scheduler._open)
        assert not any(self.scheduler._waiting)
        assert all(probe.request.on_cancel is None for probe in self.probes)


def values(probe: Probe) -> list[float]:
    return [float(answer.outputs[0].array[0]) for answer in probe.answers if isinstance(answer, InferResponse)]


@given(
    steps=st.sampled_from([CHAIN, FAN, STREAM]),
    limit=st.integers(0, 2),
    actions=st.lists(st.tuples(st.sampled_from(["ask", "answer", "more", "fail", "cancel", "refuse"]), st.integers(0, 9))),
)
def test_every_request_ends_once_and_leaves_nothing(steps, limit, actions) -> None:
    world = World(steps, limit)
    for action, number in actions:
        world.members.refuses = action == "refuse"
        calls = world.open
        if action in ("ask", "refuse"):
            world.ask()
        elif action == "cancel" and world.probes:
            world.probes[number % len(world.probes)].request.cancel()
        elif calls and action in ("answer", "fail", "more"):
            call = calls[number % len(calls)]
            if action == "fail":
                call.fail()
            else:
                call.answer(is_final=action == "answer")
        if limit:
            assert max(world.scheduler._open) <= limit
    world.members.refuses = False
    is_idle = []
    world.scheduler.on_idle(lambda: is_idle.append(True))
    while calls := world.open:
        calls[0].answer()
    assert is_idle == [True]
    world.check_empty()


def test_a_request_goes_through_the_steps_and_its_times_are_counted() -> None:
    world = World(CHAIN)
    probe = world.ask()
    for _ in range(3):
        assert len(world.open) == 1
        world.open[0].answer()
    assert values(probe) == [3]
    assert (world.statistics.execution_count, world.statistics.queue_ns) == (1, 3)
    world.check_empty()


def test_steps_that_answer_at_once_take_no_stack() -> None:
    names = ["X", *(f"t{number}" for number in range(2000)), "Y"]
    world = World([("m", before, after) for before, after in pairwise(names)], is_immediate=True)
    probe = world.ask()
    assert values(probe) == [2001]
    world.check_empty()


def test_a_step_whose_result_nobody_wants_runs_on_after_the_answer() -> None:
    world = World(FAN)
    probe = world.ask()
    world.open[0].answer()
    wanted, unwanted = world.open
    wanted.answer()
    assert (probe.end_count, world.scheduler.pending_count()) == (1, 1)
    unwanted.answer()
    world.open[0].answer()
    world.check_empty()


def test_the_error_of_one_step_ends_the_others() -> None:
    world = World(FAN)
    probe = world.ask()
    world.open[0].answer()
    _, unwanted = world.open
    unwanted.fail()
    assert probe.error is not None
    assert (probe.error.code, probe.error.message) == (Code.INVALID_ARGUMENT, "in ensemble 'e', wrong")
    world.check_empty()


def test_steps_are_of_the_ensembles_client_have_its_deadline_and_their_refusal_says_when_to_try_again() -> None:
    world = World(CHAIN)
    probe = Probe({"X": np.zeros(2, np.float32)})
    probe.request.outputs = ("Y",)
    probe.request.client, probe.request.deadline_ns = "gold", 7
    world.probes.append(probe)
    world.scheduler.enqueue(probe.request)
    (step,) = world.open
    assert (step.call.client, step.call.deadline_ns) == ("gold", 7)
    step.is_over = True
    step.sink.fail(RefusedError("too late", "too_late", 3))
    assert probe.error is not None
    assert (probe.error.code, probe.error.retry_after_s) == (Code.UNAVAILABLE, 3)
    world.check_empty()


def test_a_missing_model_refuses_the_request_and_holds_none() -> None:
    world = World([*CHAIN[:2], ("absent", "b", "Y")])
    with pytest.raises(InferenceServerError) as caught:
        world.ask()
    assert caught.value.code is Code.UNAVAILABLE
    assert caught.value.message == "ensemble 'e' contains models that are not available: no such model"
    assert world.members.held == 0


def test_a_decoupled_step_is_held_back_while_those_behind_it_are_slow() -> None:
    world = World(STREAM)
    world.ask()
    source = world.open[0]
    called: list[int] = []
    while source.sink.when_writable(lambda: called.append(1)):
        source.answer(is_final=False)
    assert len(world.open) == 16
    world.open[1].answer()
    assert called == [1]
    assert source.sink.when_writable(lambda: called.append(2))


def test_a_decoupled_step_is_held_back_while_the_client_is_slow() -> None:
    world = World(STREAM)
    probe = world.ask()
    probe.is_slow = True
    assert not world.open[0].sink.when_writable(lambda: None)
    assert len(probe.writable_callbacks) == 1


def test_no_responses_are_an_end_without_one() -> None:
    world = World(STREAM)
    probe = world.ask()
    world.open[0].end()
    assert (probe.answers, probe.end_count) == ([None], 1)
    world.check_empty()


def test_after_stop_what_runs_goes_on_and_new_requests_are_refused() -> None:
    world = World(CHAIN)
    probe = world.ask()
    world.scheduler.stop()
    with pytest.raises(InferenceServerError, match="stopped accepting"):
        world.ask()
    world.probes.pop()
    for _ in range(3):
        world.open[0].answer()
    assert values(probe) == [3]
    world.check_empty()


def test_fail_queued_ends_everything() -> None:
    world = World(CHAIN, limit=1)
    probes = [world.ask() for _ in range(3)]
    world.scheduler.fail_queued(invalid_argument("gone"))
    assert [probe.error.message for probe in probes if probe.error] == ["gone"] * 3
    world.check_empty()

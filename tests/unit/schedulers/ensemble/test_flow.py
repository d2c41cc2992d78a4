"""Which steps are due when, and what the answers are: against a slow reference, on random graphs and in any order of ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.plan import StepPlan
from naiad.schedulers.ensemble.flow import Firing, Flow
from naiad.schedulers.ensemble.graph import Graph, StepModel

Value = tuple
"""A tensor's history: what it was made of. Two that are equal were made in the same way."""


def step(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> StepPlan:
    return StepPlan("m", "", tuple(inputs.items()), dict(outputs))


@dataclass
class Case:
    """A graph with the numbers of responses of its decoupled steps, and who leaves out which output."""

    steps: list[StepPlan]
    models: list[StepModel]
    responses: dict[int, int]
    omitted: set[tuple[int, str]]
    wanted: tuple[str, ...]
    given: dict[str, Value | None]

    def run(self, number: int, inputs: Mapping[str, Value]) -> list[dict[str, Value]]:
        """Return the responses of a step to these inputs."""
        made = tuple(sorted(inputs.items()))
        return [
            {name: (number, name, index, made) for name in self.steps[number].outputs if (number, name) not in self.omitted}
            for index in range(self.responses.get(number, 1))
        ]

    def expected(self) -> list[dict[str, Value | None]]:
        """Return the answers by going through the steps one after the other, a world for each response of a decoupled one."""
        worlds: list[dict[str, Value | None]] = [dict(self.given)]
        for number, plan in enumerate(self.steps):
            worlds = [later for world in worlds for later in self._after(world, number, plan)]
        return [{name: world[name] for name in self.wanted} for world in worlds]

    def _after(self, world: dict[str, Value | None], number: int, plan: StepPlan) -> list[dict[str, Value | None]]:
        absent = [name for name, tensor in plan.inputs if world[tensor] is None]
        nothing = dict.fromkeys(plan.outputs.values())
        if not set(absent) <= self.models[number].optional:
            # Of a decoupled step there is no response at all, and nothing behind it.
            return [] if self.models[number].is_decoupled else [{**world, **nothing}]
        inputs = {name: world[tensor] for name, tensor in plan.inputs if world[tensor] is not None}
        return [
            {**world, **nothing, **{plan.outputs[name]: value for name, value in response.items()}}
            for response in self.run(number, inputs)
        ]


@st.composite
def cases(draw: st.DrawFn, has_decoupled: bool) -> Case:
    """Draw a graph in which each step reads tensors of those before it; at most one step is decoupled."""
    inputs = [f"in{number}" for number in range(draw(st.integers(1, 3)))]
    known = list(inputs)
    count = draw(st.integers(1, 7))
    decoupled = draw(st.integers(0, count - 1)) if has_decoupled else -1
    steps, models, omitted = [], [], set()
    for number in range(count):
        reads = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
        outputs = {f"o{index}": f"t{number}{index}" for index in range(draw(st.integers(1, 2)))}
        steps.append(step({f"i{index}": tensor for index, tensor in enumerate(reads)}, outputs))
        optional = draw(st.frozensets(st.sampled_from([f"i{index}" for index in range(len(reads))])))
        models.append(StepModel(number == decoupled, optional))
        known += outputs.values()
        omitted |= {(number, name) for name in outputs if draw(st.integers(0, 9)) == 0}
    responses = {decoupled: draw(st.integers(0, 4))} if has_decoupled else {}
    wanted = tuple(draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True)))
    given_tensors = {name: None if draw(st.integers(0, 9)) == 0 else (name,) for name in inputs}
    return Case(steps, models, responses, omitted, wanted, given_tensors)


class Runner:
    """Runs a flow; the order in which responses come is drawn."""

    def __init__(self, case: Case, data: st.DataObject) -> None:
        self.case = case
        self.data = data
        self.flow: Flow[Value] = Flow(Graph(case.steps, case.models, case.given), case.wanted, case.given)
        self.open: list[tuple[Firing[Value], list[dict[str, Value]]]] = []
        self.fired: list[tuple] = []

    def run(self) -> list[dict[str, Value]]:
        self._collect()
        while self.open:
            index = self.data.draw(st.integers(0, len(self.open) - 1))
            firing, responses = self.open[index]
            if responses:
                self.flow.take(firing, responses.pop(0))
            else:
                self.open.pop(index)
                self.flow.end(firing)
            self._collect()
        assert self.flow.open_count == 0
        return list(self.flow.answers)

    def _collect(self) -> None:
        while self.flow.firings:
            firing = self.flow.firings.popleft()
            self.fired.append((firing.step, tuple(sorted(firing.inputs.items()))))
            self.open.append((firing, self.case.run(firing.step, firing.inputs)))


def as_set(answers: list[dict[str, Value]]) -> list[list[tuple]]:
    return sorted((sorted(answer.items()) for answer in answers), key=repr)


@given(case=cases(has_decoupled=False), data=st.data())
def test_one_answer_as_the_steps_one_after_the_other_give_it_whatever_ends_first(case: Case, data: st.DataObject) -> None:
    runner = Runner(case, data)
    (expected,) = case.expected()
    answers = runner.run()
    if None in expected.values():
        assert (answers, runner.flow.is_stuck) == ([], True)
    else:
        assert (answers, runner.flow.is_stuck) == ([expected], False)
    assert len({number for number, _ in runner.fired}) == len(runner.fired), "a step ran twice"


@given(case=cases(has_decoupled=True), data=st.data())
def test_each_response_of_a_decoupled_step_gives_the_answer_that_it_alone_would(case: Case, data: st.DataObject) -> None:
    runner = Runner(case, data)
    expected = case.expected()
    graph = Graph(case.steps, case.models, case.given)
    if not graph.wiring(case.wanted).answer.path:
        # Nothing of what is wanted comes from the decoupled step: one answer, even if that never answers.
        single = Case(case.steps, case.models, {}, case.omitted, case.wanted, case.given)
        reference = single.expected()
        is_dead = not reference
        answers = runner.run()
        assert is_dead or as_set(answers) == as_set([answer for answer in reference[:1] if None not in answer.values()])
        return
    answers = runner.run()
    assert as_set(answers) == as_set([answer for answer in expected if None not in answer.values()])
    assert runner.flow.is_stuck == any(None in answer.values() for answer in expected)


@given(case=cases(has_decoupled=False), data=st.data())
def test_a_tensor_is_let_go_when_all_who_read_it_have_it(case: Case, data: st.DataObject) -> None:
    runner = Runner(case, data)
    runner.run()
    root_values = [value for live in runner.flow._live.values() for iteration in live for value in iteration.values.values()]
    assert [value for value in root_values if value is not None] == []


def test_iterations_that_are_done_are_forgotten() -> None:
    steps = [step({"x": "in"}, {"y": "t"}), step({"x": "t", "z": "in"}, {"y": "out"})]
    graph = Graph(steps, [StepModel(is_decoupled=True), StepModel()], ["in"])
    flow: Flow[Value] = Flow(graph, ["out"], {"in": ("in",)})
    source = flow.firings.popleft()
    for number in range(100):
        flow.take(source, {"y": (number,)})
        firing = flow.firings.popleft()
        flow.take(firing, {"y": (number,)})
        flow.end(firing)
        assert flow.answers.popleft() == {"out": (number,)}
        assert flow._live[0,] == {}
    flow.end(source)
    assert flow.open_count == 0


def test_a_late_tensor_reaches_every_iteration_that_waits_for_it() -> None:
    steps = [
        step({"x": "in"}, {"y": "many"}),
        step({"x": "in"}, {"y": "once"}),
        step({"x": "many", "z": "once"}, {"y": "out"}),
    ]
    graph = Graph(steps, [StepModel(is_decoupled=True), StepModel(), StepModel()], ["in"])
    flow: Flow[Value] = Flow(graph, ["out"], {"in": ("in",)})
    source, slow = flow.firings.popleft(), flow.firings.popleft()
    for number in range(3):
        flow.take(source, {"y": (number,)})
    assert not flow.firings
    flow.take(slow, {"y": ("late",)})
    assert [firing.inputs for firing in flow.firings] == [{"x": (number,), "z": ("late",)} for number in range(3)]


def test_responses_of_two_decoupled_steps_can_not_be_joined() -> None:
    steps = [step({"x": "in"}, {"y": "a"}), step({"x": "in"}, {"y": "b"}), step({"x": "a", "z": "b"}, {"y": "out"})]
    models = [StepModel(is_decoupled=True), StepModel(is_decoupled=True), StepModel()]
    with pytest.raises(ValueError, match="'b'"):
        Graph(steps, models, ["in"])

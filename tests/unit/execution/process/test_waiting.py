"""A model is stuck exactly when all of its instances wait for each other in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from naiad.execution.process.waiting import WaitGraph


@dataclass
class Waiting:
    is_busy: bool = False
    awaited_models: list[str] = field(default_factory=list)


def graph(**instances: list[Waiting]) -> WaitGraph:
    made = WaitGraph()
    for model, known in instances.items():
        for instance in known:
            made.add(model, instance)
    return made


def on(*models: str) -> Waiting:
    return Waiting(True, list(models))


@pytest.mark.parametrize(
    ("instances", "is_stuck"),
    [
        ({}, False),
        ({"a": [Waiting()]}, False),
        ({"a": [on()]}, False),
        ({"a": [on("a")]}, True),
        ({"a": [on("a"), Waiting()]}, False),
        ({"a": [on("a"), on()]}, False),
        ({"a": [on("b")], "b": [on("a")]}, True),
        ({"a": [on("b")], "b": [on("c")], "c": [on("a")]}, True),
        ({"a": [on("b")], "b": [on("a"), on()]}, False),
        ({"a": [on("b")], "b": [on("elsewhere")]}, False),
        ({"a": [on("elsewhere", "a")]}, True),
    ],
)
def test_who_waits_for_himself_is_stuck(instances, is_stuck):
    assert graph(**instances).is_stuck("a") is is_stuck


def test_an_instance_that_is_gone_is_forgotten():
    made, instance = WaitGraph(), on("a")
    made.add("a", instance)
    assert made.is_stuck("a")
    made.remove("a", instance)
    assert not made.is_stuck("a")


def test_an_ensemble_waits_as_the_models_of_its_steps_do():
    waiting = graph(a=[Waiting(True, ["e"])], b=[Waiting(True, ["inner"])], free=[Waiting(False)])
    parts = {"e": ["free", "a"], "inner": ["e"], "fine": ["free"]}
    waiting.parts = lambda name: parts.get(name, [])
    assert [waiting.is_stuck(name) for name in ("e", "inner", "fine", "a", "b")] == [True, True, False, True, True]
    assert waiting.waits_for(Waiting(True, ["inner"]), "free")
    assert not waiting.waits_for(Waiting(True, ["fine"]), "b")

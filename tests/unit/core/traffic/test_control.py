"""Rules of which settings hold, and which versions share requests when some can't serve."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from plans import plan

from naiad.config.traffic import TrafficSettings
from naiad.core.traffic.control import TrafficControl
from naiad.errors import Code, InferenceServerError, not_found
from naiad.request.call import InferCall

EMPTY = {"weights": {}, "shadow": {}, "max_shadow_in_flight": 16}


class Repository:
    """Models by name; a name with an empty list is known and not loaded."""

    def __init__(self) -> None:
        self.models: dict[str, list[Any]] = {"m": []}

    def key_for(self, name: str) -> str:
        return name

    def is_serving(self, name: str) -> bool | None:
        return bool(self.models[name]) if name in self.models else None

    def loaded(self, name: str) -> list[Any]:
        return self.models.get(name, [])

    def load(self, *versions: int, name: str = "m", traffic: TrafficSettings | None = None) -> None:
        self.models[name] = [
            SimpleNamespace(
                plan=replace(plan([], [], name=name), version=version, traffic=traffic),
                refusal="",
                unready_reason="",
                enqueue=None,
                cached=None,
            )
            for version in versions
        ]


class Bench:
    """`drawn` is the point of every choice."""

    def __init__(self) -> None:
        self.repository = Repository()
        self.drawn = 0.0
        self.control = TrafficControl(self.repository, lambda: self.drawn, lambda job: job()())

    def route_of(self, name: str, version: str) -> Any:
        models = self.repository.loaded(name)
        found = [model for model in models if version in ("", str(model.plan.version))]
        if not found:
            raise not_found("no such version")
        if found[-1].refusal:
            raise not_found(found[-1].refusal)
        return SimpleNamespace(model=found[-1], traffic=None)

    def answering(self, sequence_id: int = 0, *, is_start: bool = True) -> int | None:
        """Return the version that answers at the drawn point, None where there is nothing to choose."""
        route = self.control.route("m", self.route_of)
        if route is None or route.traffic is None:
            return None
        call = InferCall("m", sequence_id=sequence_id, is_sequence_start=is_start)
        chosen = route.traffic.choose(call)
        route.traffic.accepted(call, None, chosen)
        return chosen.model.plan.version

    def versions(self) -> set[int | None]:
        found = set()
        for self.drawn in (0.0, 0.25, 0.5, 0.75, 0.99):
            found.add(self.answering())
        return found

    def model(self, version: int) -> Any:
        return next(model for model in self.repository.models["m"] if model.plan.version == version)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_without_settings_there_is_nothing_to_choose(bench):
    bench.repository.load(1, 2)
    assert bench.answering() is None
    bench.control.set("m", {"weights": {}})
    assert bench.answering() is None


def test_the_api_goes_before_the_configuration_until_it_is_reset(bench):
    bench.repository.load(1, 2, traffic=TrafficSettings({1: 1}, {}))
    assert (bench.versions(), bench.control.show("m")["source"]) == ({1}, "config")
    bench.control.set("m", {"weights": {"2": 1}})
    assert (bench.versions(), bench.control.show("m")["source"]) == ({2}, "api")
    bench.repository.load(1, 2, 3, traffic=TrafficSettings({3: 1}, {}))
    assert bench.versions() == {2}
    bench.control.reset("m")
    assert (bench.versions(), bench.control.show("m")["source"]) == ({3}, "config")


def test_versions_that_are_not_loaded_or_refuse_leave_their_share_to_the_others(bench):
    bench.repository.load(1, 2, 3)
    bench.control.set("m", {"weights": {"1": 1, "2": 1, "3": 2, "9": 4}})
    assert (bench.versions(), bench.control.shares("m")) == ({1, 2, 3}, {1: 0.25, 2: 0.25, 3: 0.5})
    bench.model(3).refusal = "no worker is up"
    assert (bench.versions(), bench.control.shares("m")) == ({1, 2}, {1: 0.5, 2: 0.5})


def test_one_whose_worker_restarts_is_left_out_unless_it_is_the_only_one(bench):
    bench.repository.load(1, 2, 3)
    bench.control.set("m", {"weights": {"1": 1, "2": 1}})
    bench.model(1).unready_reason = "a worker is being started"
    assert bench.versions() == {2}
    bench.control.set("m", {"weights": {"1": 1}})
    assert bench.versions() == {1}


def test_when_no_weighted_version_is_ready_the_latest_answers_or_says_why_it_does_not(bench):
    bench.repository.load(1, 2)
    bench.control.set("m", {"weights": {"9": 1}})
    assert (bench.versions(), bench.control.shares("m")) == ({2}, {})
    bench.model(2).refusal = "no worker is up"
    with pytest.raises(InferenceServerError, match="no worker is up"):
        bench.answering()


def test_an_unloaded_model_leaves_the_error_to_the_look_up_and_keeps_its_settings(bench):
    bench.control.set("m", {"weights": {"1": 1}})
    assert bench.answering() is None
    bench.repository.load(1, 2)
    assert bench.versions() == {1}


def test_an_open_sequence_ends_where_it_began_even_without_settings(bench):
    bench.repository.load(1, 2)
    bench.control.set("m", {"weights": {"1": 1}})
    assert bench.answering(7) == 1
    bench.control.reset("m")
    assert (bench.answering(7, is_start=False), bench.answering(8)) == (1, 2)
    bench.repository.load(2)
    assert bench.answering(7, is_start=False) == 2


def test_bad_settings_leave_what_holds(bench):
    bench.repository.load(1, 2)
    bench.control.set("m", {"weights": {"1": 1}})
    with pytest.raises(InferenceServerError) as caught:
        bench.control.set("m", {"weights": {"2": -1}})
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert bench.versions() == {1}


def test_an_unknown_model_has_no_settings(bench):
    for ask in (bench.control.show, bench.control.reset, lambda name: bench.control.set(name, {"weights": {"1": 1}})):
        with pytest.raises(InferenceServerError) as caught:
            ask("nobody")
        assert (caught.value.code, caught.value.message) == (
            Code.NOT_FOUND,
            "Request for unknown model: 'nobody' is not found",
        )
    assert bench.control.show("m") == {"model": "m", "source": "none", **EMPTY, "shares": {}}


def test_models_that_come_and_go_leave_nothing_behind(bench):
    for number in range(50):
        name = f"upload{number}"
        bench.repository.load(1, name=name)
        bench.control.set(name, {"weights": {"1": 1}})
        del bench.repository.models[name]
    assert len(list(bench.control.states())) == 1

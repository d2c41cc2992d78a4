"""Fair shares of a queue: by weight while all have something queued, in turn for who comes new, and nobody is left out."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from batching_plans import make_plan
from fake_execution import FakeInstance, Probe
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from naiad.config.plan import QueuePolicy
from naiad.request.request import InferRequest
from naiad.schedulers import fairness
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from naiad.schedulers.fairness import FairRequests
from naiad.schedulers.queue import PriorityQueue


def make_request(client: str, number: int = 0, batch_size: int = 1, timeout_us: int = 0) -> InferRequest:
    request = Probe(batch_size=batch_size).request
    request.client, request.id, request.timeout_us = client, f"{client}{number}", timeout_us
    return request


def make_queue(weights: dict[str, int] | None = None, **plan: Any) -> PriorityQueue:
    return PriorityQueue(make_plan(client_weights=weights or {}, **plan))


def fill(queue: PriorityQueue, client: str, count: int, batch_size: int = 1) -> None:
    for number in range(count):
        queue.add(make_request(client, number, batch_size), 0)


def clients(requests: list[InferRequest]) -> str:
    return "".join(request.client for request in requests)


def test_equal_clients_take_turns_however_much_one_has_queued() -> None:
    queue = make_queue()
    fill(queue, "a", 100)
    fill(queue, "b", 3)
    assert clients(queue.take(8)) == "abababaa"


def test_a_weight_is_how_many_items_a_client_gets_for_one_of_another() -> None:
    queue = make_queue({"a": 3})
    fill(queue, "a", 100)
    fill(queue, "b", 100)
    assert Counter(clients(queue.take(80))) == {"a": 60, "b": 20}


def test_items_count_not_requests() -> None:
    queue = make_queue()
    fill(queue, "a", 100, batch_size=4)
    fill(queue, "b", 100)
    assert Counter(clients(queue.take(50))) == {"a": 10, "b": 40}


def test_who_comes_new_waits_for_one_turn_of_the_others_at_most() -> None:
    queue = make_queue()
    for name in "abc":
        fill(queue, name, 1000)
    queue.take(500)
    fill(queue, "d", 2)
    assert "d" in clients(queue.take(4))


@pytest.mark.parametrize("weights", [{}, {"a": 9, "c": 3}, {"b": 100, "c": 50}])
def test_however_long_clients_come_and_go_who_comes_new_is_served_after_a_few_requests(weights: dict[str, int]) -> None:
    """The virtual time keeps with the clients that are queued: it runs away from nobody, and from no newcomer."""
    others, queue = random.Random(0), make_queue(weights)
    queued: Counter[str] = Counter()
    newcomer, ahead, most_ahead = make_request("new"), 0, 0
    queue.add(newcomer, 0)
    for number in range(5000):
        names = [name for name in "ab" if not queued[name]] + others.choices("cdefgh", k=others.random() < 0.4)
        for name in names:
            queued[name] += 1
            queue.add(make_request(name, batch_size=others.randint(1, 8)), 0)
        (request,) = queue.take(1)
        queued[request.client] -= 1
        if request is newcomer:
            most_ahead = max(most_ahead, ahead)
            newcomer, ahead = make_request(f"new{number}"), 0
            queue.add(newcomer, 0)
        else:
            ahead += 1
    # Eight others at most have something queued, each of which may be due before.
    assert most_ahead <= 8


def test_nobody_saves_up_a_share_by_staying_away() -> None:
    queue = make_queue()
    fill(queue, "a", 500)
    fill(queue, "b", 1)
    queue.take(200)
    fill(queue, "b", 100)
    assert Counter(clients(queue.take(20))) == {"a": 10, "b": 10}


@pytest.mark.parametrize("weight", [1, 9])
@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("pause", [1, 2, 3])
def test_who_sends_the_next_request_after_the_answer_gets_the_share_of_who_queues_many(
    weight: int, batch_size: int, pause: int
) -> None:
    """Neither more, by coming new each time, nor less, by having nothing queued until the answer is there."""
    queue = make_queue({"a": weight})
    fill(queue, "a", 2000)
    for name in "bcd":
        fill(queue, name, 1, batch_size)
    served: Counter[str] = Counter()
    asking: list[tuple[int, str]] = []
    for turn in range(1000):
        (request,) = queue.take(1)
        served[request.client] += request.batch_size
        if request.client != "a":
            asking.append((turn + pause, request.client))
        while asking and asking[0][0] <= turn + 1:
            fill(queue, asking.pop(0)[1], 1, batch_size)
    for name in "bcd":
        assert abs(served["a"] / weight - served[name]) <= 2 * batch_size


def test_requests_that_are_given_up_cost_their_client_nothing() -> None:
    queue = make_queue()
    given_up = [make_request("a", number) for number in range(100)]
    for request in given_up:
        queue.add(request, 0)
    fill(queue, "a", 100)
    fill(queue, "b", 100)
    for request in given_up:
        queue.remove(request)
    assert Counter(clients(queue.take(20))) == {"a": 10, "b": 10}


def test_priority_levels_go_before_fairness() -> None:
    queue = make_queue(levels=2, default_level=2)
    fill(queue, "a", 10)
    for number in range(3):
        request = make_request("b", number)
        request.priority = 1
        queue.add(request, 0)
    assert clients(queue.take(5)) == "bbbaa"


def test_who_is_late_under_delay_goes_behind_all_that_are_in_time() -> None:
    queue = make_queue(default_policy=QueuePolicy(timeout_us=10, is_delay=True))
    fill(queue, "a", 2)
    assert queue.expire(10_000) == []
    for number in range(2):
        queue.add(make_request("b", number), 10_000)
    assert clients(list(queue)) == clients(queue.take(4)) == "bbaa"


def test_endless_new_clients_do_not_starve_one_that_waits() -> None:
    queue = make_queue()
    fill(queue, "a", 50)
    served = 0
    for number in range(3000):
        queue.add(make_request(f"new{number}"), 0)
        served += queue.take(1)[0].client == "a"
    assert served >= 5


def test_what_is_remembered_of_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "_MOST_REMEMBERED", 20)
    queue = FairRequests({})
    for number in range(5):
        queue[make_request("a", number)] = 0
    for number in range(5000):
        request = make_request(f"new{number}", batch_size=100)
        queue[request] = 0
        if number % 2:
            queue.pop(request, None)
        else:
            queue.popitem(last=False)
            queue[make_request("a", number)] = 0
    assert len(queue._ended) <= 20
    assert len(queue._finishes) <= fairness._SMALL_HEAP + 2 * 20
    while len(queue):
        queue.popitem(last=False)
    assert (queue._ended, queue._finishes, queue._clients, queue._weight) == ({}, [], {}, 0)


def test_what_is_not_there_cannot_be_taken_out() -> None:
    queue = make_queue()
    fill(queue, "a", 1)
    with pytest.raises(KeyError):
        queue.remove(make_request("a"))
    with pytest.raises(KeyError):
        queue.remove(make_request("b"))


def test_an_early_refusal_counts_what_goes_first_by_shares_not_by_coming() -> None:
    queue = make_queue()
    fill(queue, "flood", 1000)
    assert queue.items_ahead(make_request("flood")) == 1000
    assert queue.items_ahead(make_request("new")) == 0
    fill(queue, "new", 10)
    assert queue.items_ahead(make_request("new")) == 20


SIZES = st.integers(1, 8)
NAMES = st.sampled_from(["", "a", "b", "c"])
WEIGHTS = st.dictionaries(NAMES, st.integers(1, 9))


@given(
    weights=WEIGHTS,
    sizes=st.fixed_dictionaries(dict.fromkeys("ab", st.lists(SIZES, min_size=40, max_size=40))),
    seed=st.integers(),
)
def test_over_any_time_with_both_queued_shares_differ_by_a_request_each_at_most(
    weights: dict[str, int], sizes: dict[str, list[int]], seed: int
) -> None:
    queue = make_queue(weights)
    others = random.Random(seed)
    left = Counter()
    for name, each in sizes.items():
        for size in each:
            queue.add(make_request(name, batch_size=size), 0)
            left[name] += 1
    shares: list[tuple[float, float]] = [(0.0, 0.0)]
    served = Counter()
    while all(left.values()):
        if others.random() < 0.3:
            queue.add(make_request(others.choice("cde"), batch_size=others.randint(1, 8)), 0)
        request = queue.take(1)[0]
        served[request.client] += request.batch_size
        if request.client in left:
            left[request.client] -= 1
        shares.append((served["a"] / weights.get("a", 1), served["b"] / weights.get("b", 1)))
    gaps = [a - b for a, b in shares]
    bound = 8 / weights.get("a", 1) + 8 / weights.get("b", 1)
    assert max(gaps) - min(gaps) <= bound + 1e-9


class Model:
    """The obvious queue: which requests are in it, for each client in the order of their coming."""

    def __init__(self) -> None:
        self.of: dict[str, list[InferRequest]] = {}

    def all(self) -> set[InferRequest]:
        return {request for requests in self.of.values() for request in requests}


@given(
    weights=WEIGHTS,
    steps=st.lists(st.one_of(st.tuples(NAMES, SIZES), st.integers(1, 5), st.floats(0, 0.999)), max_size=80),
)
def test_what_iterating_yields_first_is_what_is_taken_and_clients_keep_their_order(
    weights: dict[str, int], steps: list[tuple[str, int] | int | float]
) -> None:
    """A step adds a request of a client, takes some from the front, or takes one out wherever it stands."""
    queue, model = make_queue(weights), Model()
    for step in steps:
        if isinstance(step, tuple):
            request = make_request(step[0], batch_size=step[1])
            queue.add(request, 0)
            model.of.setdefault(step[0], []).append(request)
        elif isinstance(step, int):
            expected = list(queue)[: min(step, len(queue))]
            assert queue.take(len(expected)) == expected
            for request in expected:
                assert model.of[request.client].pop(0) is request
        elif model.all():
            request = list(queue)[int(step * len(queue))]
            queue.remove(request)
            model.of[request.client].remove(request)
        assert set(queue) == model.all()
        assert len(queue) == len(model.all())
        assert queue.size == sum(request.batch_size for request in model.all())
        for requests in model.of.values():
            assert [request for request in queue if request in requests] == requests


@pytest.mark.parametrize("max_batch_size", [0, 4])
def test_a_client_that_sends_little_is_served_among_the_first_batches(max_batch_size: int) -> None:
    clock, instance = ManualClock(), FakeInstance()
    preferred = (max_batch_size,) if max_batch_size else ()
    plan = make_plan(max_batch_size=max_batch_size, preferred=preferred, client_weights={})
    scheduler = DynamicScheduler([instance], clock, plan)
    for number in range(200):
        scheduler.enqueue(make_request("flood", number))
    clock.settle()
    for number in range(5):
        scheduler.enqueue(make_request("small", number))
    while instance.is_busy:
        instance.finish()
        clock.settle()
    served = [request.client for batch in instance.batches for request in batch.requests]
    assert len(served) == 205
    assert served[: max(1, max_batch_size) + 11].count("small") == 5

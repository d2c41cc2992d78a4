"""Order of service, limits and deadlines of the priority queue."""

from __future__ import annotations

from typing import Any

import pytest
from batching_plans import make_plan
from fake_execution import Probe
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.plan import QueuePolicy
from naiad.errors import Code, FailureReason, InferenceServerError
from naiad.request.request import InferRequest
from naiad.schedulers.queue import PriorityQueue


def make_request(request_id: str = "", priority: int = 0, timeout_us: int = 0, batch_size: int = 1) -> InferRequest:
    request = Probe(batch_size=batch_size).request
    request.id, request.priority, request.timeout_us = request_id, priority, timeout_us
    return request


def make_queue(**plan: Any) -> PriorityQueue:
    return PriorityQueue(make_plan(**plan))


def ids(requests: Any) -> str:
    return "".join(request.id for request in requests)


def test_without_levels_every_priority_keeps_the_order_of_arrival() -> None:
    queue = make_queue()
    for name, priority in [("a", 3), ("b", 0), ("c", 1)]:
        queue.add(make_request(name, priority), 0)
    assert ids(queue) == "abc"


def test_level_1_goes_first_and_each_level_keeps_its_order() -> None:
    queue = make_queue(levels=3, default_level=2)
    for name, priority in [("a", 3), ("b", 2), ("c", 1), ("d", 3), ("e", 1), ("f", 2)]:
        queue.add(make_request(name, priority), 0)
    assert ids(queue) == "cebfad"
    assert ids(queue.take(4)) == "cebf"
    assert ids(queue) == "ad"


@pytest.mark.parametrize("priority", [0, 4, 2**32 - 1])
def test_no_priority_and_one_beyond_the_levels_are_the_default_level(priority: int) -> None:
    queue = make_queue(levels=3, default_level=2)
    for request in (make_request("a", 3), make_request("b", 2), make_request("c", priority), make_request("d", 1)):
        queue.add(request, 0)
    assert ids(queue) == "dbca"


def test_a_full_level_refuses_and_names_the_request() -> None:
    queue = make_queue(default_policy=QueuePolicy(max_size=2))
    queue.add(make_request(), 0)
    queue.add(make_request(), 0)
    with pytest.raises(InferenceServerError) as caught:
        queue.add(make_request("abc"), 0)
    assert caught.value.message == "[request id: abc] Exceeds maximum queue size"
    assert (caught.value.code, caught.value.reason) == (Code.UNAVAILABLE, FailureReason.REJECTED)
    with pytest.raises(InferenceServerError, match=r"^\[request id: <id_unknown>\] Exceeds maximum queue size$"):
        queue.add(make_request(), 0)
    assert (len(queue), queue.size) == (2, 2)


def test_the_limit_counts_requests_of_the_level_not_items_and_not_other_levels() -> None:
    queue = make_queue(levels=2, policies={1: QueuePolicy(max_size=1)})
    queue.add(make_request(priority=2), 0)
    queue.add(make_request(priority=2), 0)
    queue.add(make_request(priority=1, batch_size=7), 0)
    with pytest.raises(InferenceServerError, match="Exceeds maximum queue size"):
        queue.add(make_request(priority=1), 0)


def test_the_limit_counts_late_requests_too_and_a_place_is_free_once_one_has_left() -> None:
    queue = make_queue(default_policy=QueuePolicy(timeout_us=1, is_delay=True, max_size=2))
    first = make_request()
    queue.add(first, 0)
    assert queue.expire(1000) == []
    queue.add(make_request(), 1000)
    with pytest.raises(InferenceServerError, match="Exceeds maximum queue size"):
        queue.add(make_request(), 1000)
    queue.remove(first)
    queue.add(make_request(), 1000)
    assert len(queue) == 2


@pytest.mark.parametrize(
    ("default_us", "is_override_allowed", "own_us", "expected_ns"),
    [
        (0, False, 0, None),
        (0, True, 5, None),  # no limit is never longer than the request's own time-out
        (10, False, 5, 10_000),
        (10, True, 5, 5_000),
        (10, True, 0, 10_000),
        (10, True, 10, 10_000),
        (10, True, 50, 10_000),  # an override only shortens
    ],
)
def test_a_deadline_is_the_levels_time_out_or_the_requests_own_when_shorter(
    default_us: int, is_override_allowed: bool, own_us: int, expected_ns: int | None
) -> None:
    queue = make_queue(default_policy=QueuePolicy(default_us, allow_timeout_override=is_override_allowed))
    deadline_ns = queue.add(make_request(timeout_us=own_us), 7)
    assert (None if expected_ns is None else 7 + expected_ns) == deadline_ns
    assert queue.next_deadline_ns() == deadline_ns


def test_rejected_requests_leave_at_their_deadline_to_the_nanosecond_in_the_order_of_deadlines() -> None:
    queue = make_queue(default_policy=QueuePolicy(30, allow_timeout_override=True))
    for name, own_us in [("a", 20), ("b", 0), ("c", 10), ("d", 20)]:
        queue.add(make_request(name, timeout_us=own_us, batch_size=2), 0)
    assert queue.expire(9_999) == []
    assert queue.next_deadline_ns() == 10_000
    assert ids(queue.expire(10_000)) == "c"
    assert ids(queue.expire(29_999)) == "ad"
    assert (ids(queue), len(queue), queue.size) == ("b", 1, 2)


def test_delayed_requests_go_behind_those_in_time_of_their_own_level_only() -> None:
    queue = make_queue(levels=2, policies={1: QueuePolicy(1, is_delay=True)}, default_level=2)
    for name, priority in [("a", 1), ("b", 1), ("z", 2)]:
        queue.add(make_request(name, priority), 0)
    assert queue.expire(1000) == []
    queue.add(make_request("c", 1), 1000)
    assert ids(queue) == "cabz"
    assert queue.expire(2000) == []
    assert ids(queue) == "abcz"
    assert queue.next_deadline_ns() is None
    assert ids(queue.take(2)) == "ab"
    assert (len(queue), queue.size) == (2, 2)


def test_a_request_taken_or_removed_never_expires() -> None:
    queue = make_queue(default_policy=QueuePolicy(1))
    first, second = make_request("a"), make_request("b")
    queue.add(first, 0)
    queue.add(second, 0)
    queue.take(1)
    queue.remove(second)
    assert queue.next_deadline_ns() is None
    assert queue.expire(10_000) == []


def test_a_late_request_can_be_removed() -> None:
    queue, request = make_queue(default_policy=QueuePolicy(1, is_delay=True)), make_request()
    queue.add(request, 0)
    queue.expire(1000)
    queue.remove(request)
    assert (len(queue), queue.size, bool(queue)) == (0, 0, False)


def test_removing_a_request_that_is_not_queued_is_an_error() -> None:
    queue = make_queue()
    with pytest.raises(KeyError):
        queue.remove(make_request())


def test_levels_of_requests_long_gone_are_forgotten() -> None:
    queue = make_queue(levels=2**32 - 1)
    for priority in range(1, 10_000):
        queue.add(make_request(priority=priority), 0)
        queue.take(1)
    assert queue.level_count() <= 17
    for priority in range(100, 0, -1):
        queue.add(make_request(str(priority % 10), priority), 0)
    assert ids(queue) == "1234567890" * 10


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "take", "remove", "expire"]), st.integers(0, 3), st.integers(0, 8)), max_size=60
)


@given(ACTIONS, st.booleans())
def test_the_queue_serves_as_a_sorted_list_would(actions: list[tuple[str, int, int]], is_delay: bool) -> None:
    policy = QueuePolicy(5, is_delay, allow_timeout_override=True)
    queue, model, now_us = make_queue(levels=3, default_level=2, default_policy=policy), ListQueue(is_delay), 0
    for action, level, number in actions:
        if action == "add":
            request = make_request(priority=level, timeout_us=number, batch_size=1 + number % 3)
            queue.add(request, now_us * 1000)
            model.add(request, level or 2, now_us + min(number or 5, 5))
        elif action == "take":
            count = min(number, len(model.entries))
            assert model.take(count) == queue.take(count)
        elif action == "remove" and model.entries:
            request = model.order()[number % len(model.entries)]
            model.remove(request)
            queue.remove(request)
        elif action == "expire":
            now_us += number
            assert model.expire(now_us) == queue.expire(now_us * 1000)
        assert model.order() == list(queue)
        assert (len(model.entries), sum(r.batch_size for r in model.order())) == (len(queue), queue.size)
        assert model.next_deadline_ns() == queue.next_deadline_ns()


class ListQueue:
    """The slow queue: everything is found anew by sorting. An entry is [level, is_late, place, deadline, request]."""

    def __init__(self, is_delay: bool) -> None:
        self.is_delay = is_delay
        self.entries: list[list[Any]] = []
        self.places = 0

    def add(self, request: InferRequest, level: int, deadline_us: int) -> None:
        self.places += 1
        self.entries.append([level, False, self.places, deadline_us, request])

    def order(self) -> list[InferRequest]:
        return [entry[4] for entry in sorted(self.entries, key=lambda entry: entry[:3])]

    def remove(self, request: InferRequest) -> None:
        self.entries = [entry for entry in self.entries if entry[4] is not request]

    def take(self, count: int) -> list[InferRequest]:
        taken = self.order()[:count]
        for request in taken:
            self.remove(request)
        return taken

    def expire(self, now_us: int) -> list[InferRequest]:
        late = sorted((e for e in self.entries if not e[1] and e[3] <= now_us), key=lambda entry: (entry[3], entry[2]))
        for entry in late:
            if self.is_delay:
                self.places += 1
                entry[1:3] = [True, self.places]
            else:
                self.entries.remove(entry)
        return [] if self.is_delay else [entry[4] for entry in late]

    def next_deadline_ns(self) -> int | None:
        return min((entry[3] * 1000 for entry in self.entries if not entry[1]), default=None)

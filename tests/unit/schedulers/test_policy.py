"""The decision of the dynamic batcher, checked against a slow and obvious reference of the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import pytest
from batching_plans import make_plan
from fake_execution import Probe
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.config.plan import DynamicBatchingPlan
from naiad.request.batch import CloseReason
from naiad.request.request import InferRequest
from naiad.schedulers.dynamic.policy import BatchRules, Dispatch, Wait, batch_key, next_batch

NOW = 1_000_000_000


def make_requests(*sizes: int, age_us: int = 0) -> list[InferRequest]:
    requests = [Probe(batch_size=size).request for size in sizes]
    for request in requests:
        request.enqueued_ns = NOW - age_us * 1000
    return requests


def shaped(**shapes: tuple[int, ...]) -> InferRequest:
    request = Probe({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}).request
    request.enqueued_ns = NOW
    return request


def decide(plan: DynamicBatchingPlan, requests: list[InferRequest]) -> Dispatch | Wait | None:
    return next_batch(requests, BatchRules.of(plan), NOW)


def test_an_empty_queue_gives_no_batch() -> None:
    assert decide(make_plan(), []) is None


def test_without_a_delay_whatever_is_queued_runs_at_once() -> None:
    assert Dispatch(3, 3, CloseReason.INSTANCE_FREE) == decide(make_plan(), make_requests(1, 1, 1))


@pytest.mark.parametrize(
    ("preferred", "queued", "expected"),
    [((4,), 9, [4, 4, 1]), (None, 9, [8, 1]), ((2, 4), 7, [4, 2, 1]), ((4, 6), 9, [6, 3]), ((4, 6), 5, [4, 1])],
)
def test_the_largest_preferred_head_goes_first(preferred: tuple[int, ...] | None, queued: int, expected: list[int]) -> None:
    plan, requests, sizes = make_plan(8, preferred), make_requests(*[1] * queued), []
    while requests:
        decision = decide(plan, requests)
        assert isinstance(decision, Dispatch)
        sizes.append(decision.size)
        del requests[: decision.count]
    assert expected == sizes


def test_a_head_goes_without_the_request_that_would_overshoot_every_preferred_size() -> None:
    assert Dispatch(2, 3, CloseReason.FULL) == decide(make_plan(8, (4,)), make_requests(2, 1, 3))


def test_a_request_larger_than_the_preferred_sizes_runs_alone_and_whole() -> None:
    assert Dispatch(1, 6, CloseReason.FULL) == decide(make_plan(8, (4,)), make_requests(6, 1))


def test_a_batch_never_exceeds_the_largest_size_though_the_delay_is_over() -> None:
    assert Dispatch(2, 6, CloseReason.FULL) == decide(make_plan(8, (4,), delay_us=100), make_requests(3, 3, 3, age_us=100))


def test_requests_wait_for_company_until_the_oldest_is_as_old_as_the_delay() -> None:
    plan = make_plan(8, (4,), delay_us=100)
    requests = make_requests(1, age_us=99) + make_requests(1, 1)
    decision = decide(plan, requests)
    assert isinstance(decision, Wait)
    assert (decision.until_ns, decision.wake_size) == (NOW + 1000, 4)
    assert Dispatch(3, 3, CloseReason.DELAY) == next_batch(requests, BatchRules.of(plan), decision.until_ns)


def test_the_age_counts_from_the_oldest_request_of_the_batch_wherever_it_stands() -> None:
    plan = make_plan(8, (4,), delay_us=100)
    assert Dispatch(2, 2, CloseReason.DELAY) == decide(plan, make_requests(1) + make_requests(1, age_us=100))


def test_when_the_delay_is_over_everything_that_fits_goes_preferred_or_not() -> None:
    assert Dispatch(6, 6, CloseReason.DELAY) == decide(make_plan(8, (4,), delay_us=100), make_requests(*[1] * 6, age_us=100))


def test_a_preferred_head_goes_before_the_delay_is_over() -> None:
    assert Dispatch(4, 4, CloseReason.PREFERRED) == decide(make_plan(8, (4,), delay_us=100), make_requests(*[1] * 6))


def test_a_batch_that_the_next_request_cannot_join_does_not_wait() -> None:
    assert Dispatch(1, 3, CloseReason.FULL) == decide(make_plan(4, (4,), delay_us=100), make_requests(3, 3))


def test_a_model_that_does_not_batch_runs_one_request_at_once() -> None:
    plan = make_plan(0, (), delay_us=100)
    assert Dispatch(1, 1, CloseReason.FULL) == decide(plan, make_requests(1))
    assert Dispatch(1, 1, CloseReason.FULL) == decide(plan, make_requests(1, 1))


def test_requests_of_another_shape_do_not_join_and_end_the_wait() -> None:
    plan = make_plan(8, delay_us=100, variable_inputs=("X",))
    requests = [shaped(X=(1, 5)), shaped(X=(1, 5)), shaped(X=(1, 6)), shaped(X=(1, 5))]
    assert Dispatch(2, 2, CloseReason.UNLIKE) == decide(plan, requests)


def test_the_batch_dimension_is_no_part_of_the_shape() -> None:
    assert Dispatch(2, 2, CloseReason.INSTANCE_FREE) == decide(
        make_plan(8, variable_inputs=("X",)), [shaped(X=(1, 5)), shaped(X=(3, 5))]
    )


def test_shapes_of_inputs_without_the_rule_may_differ() -> None:
    requests = [shaped(X=(1, 5), R=(1, 2)), shaped(X=(1, 5), R=(1, 3))]
    assert Dispatch(2, 2, CloseReason.INSTANCE_FREE) == decide(make_plan(8, variable_inputs=("X",)), requests)


def test_with_optional_inputs_only_requests_with_the_same_inputs_join() -> None:
    plan = make_plan(8, has_optional_inputs=True, variable_inputs=("X", "Y"))
    both, other_order, one = shaped(X=(1, 5), Y=(1, 2)), shaped(Y=(1, 2), X=(1, 5)), shaped(X=(1, 5))
    assert Dispatch(2, 2, CloseReason.UNLIKE) == decide(plan, [both, other_order, one])
    assert Dispatch(1, 1, CloseReason.UNLIKE) == decide(plan, [one, both])


def test_optional_inputs_of_fixed_shape_count_too() -> None:
    assert Dispatch(1, 1, CloseReason.UNLIKE) == decide(
        make_plan(8, has_optional_inputs=True), [shaped(X=(1, 5)), shaped(X=(1, 5), Y=(1, 2))]
    )


def test_a_wait_ends_early_by_the_next_preferred_size_or_by_another_shape_only() -> None:
    plan = make_plan(8, (4, 8), delay_us=100, variable_inputs=("X",))
    rules = BatchRules.of(plan)
    wait = decide(plan, [shaped(X=(1, 5))])
    assert isinstance(wait, Wait)
    assert not wait.is_ended_by(shaped(X=(2, 5)), 3, rules)
    assert wait.is_ended_by(shaped(X=(3, 5)), 4, rules)
    assert wait.is_ended_by(shaped(X=(1, 6)), 2, rules)


def test_a_decision_looks_at_no_more_requests_than_a_batch_and_one() -> None:
    looked = 0

    def queue() -> Iterator[InferRequest]:
        nonlocal looked
        for request in requests:
            looked += 1
            yield request

    for plan in (make_plan(8), make_plan(8, (4,)), make_plan(8, (4,), delay_us=100)):
        looked, requests = 0, repeat(make_requests(1)[0], 100_000)
        assert isinstance(next_batch(queue(), BatchRules.of(plan), NOW), Dispatch)
        assert looked <= 9


def reference(plan: DynamicBatchingPlan, requests: list[InferRequest]) -> tuple[str, int, CloseReason | None]:
    """The rules said once more, step by step: ("run", requests, why) or ("wait", nanoseconds, None) or ("nothing", 0, None)."""
    preferred, delay_ns = set(plan.preferred_batch_sizes), plan.max_queue_delay_us * 1000
    largest = max(preferred) if preferred else 0
    rules = BatchRules.of(plan)
    pending: list[InferRequest] = []
    best, send_now = 0, None
    for request in requests:
        size = sum(r.batch_size for r in pending)
        if pending:
            if size + request.batch_size > largest and best == 0:
                best = len(pending)
            if size + request.batch_size > plan.max_batch_size:
                send_now = request
                break
            if batch_key(request, rules) != batch_key(pending[0], rules):
                send_now = request
                break
        pending.append(request)
        if size + request.batch_size in preferred:
            best = len(pending)
    if not pending:
        return "nothing", 0, None
    age_ns = NOW - min(request.enqueued_ns for request in pending)
    if best and not (delay_ns != 0 and age_ns >= delay_ns):
        size = sum(r.batch_size for r in pending[:best])
        return "run", best, CloseReason.PREFERRED if size in preferred and size != plan.max_batch_size else CloseReason.FULL
    if send_now is not None or sum(r.batch_size for r in pending) >= largest or delay_ns == 0 or age_ns >= delay_ns:
        return "run", len(pending), reference_reason(plan, pending, send_now, age_ns >= delay_ns > 0)
    return "wait", delay_ns - age_ns, None


def reference_reason(
    plan: DynamicBatchingPlan, pending: list[InferRequest], unjoined: InferRequest | None, is_delay_over: bool
) -> CloseReason:
    """Return why `pending` goes without `unjoined`, the request that can't join it."""
    size = sum(request.batch_size for request in pending)
    if size >= plan.max_batch_size:
        return CloseReason.FULL
    if size in plan.preferred_batch_sizes:
        return CloseReason.PREFERRED
    if unjoined is not None:
        return CloseReason.FULL if size + unjoined.batch_size > plan.max_batch_size else CloseReason.UNLIKE
    if is_delay_over:
        return CloseReason.DELAY
    return CloseReason.FULL if size > max(plan.preferred_batch_sizes) else CloseReason.INSTANCE_FREE


@st.composite
def situations(draw: st.DrawFn) -> tuple[DynamicBatchingPlan, list[InferRequest]]:
    limit = draw(st.integers(0, 8))
    preferred = tuple(sorted(draw(st.sets(st.integers(1, limit), min_size=1)))) if limit else ()
    is_shaped = draw(st.booleans())
    plan = make_plan(limit, preferred, draw(st.sampled_from([0, 10])), variable_inputs=("X",) if is_shaped else ())
    requests = []
    for size, age_us, dim in draw(
        st.lists(st.tuples(st.integers(1, max(limit, 1)), st.integers(0, 12), st.sampled_from([5, 5, 5, 6])), max_size=12)
    ):
        request = Probe({"X": np.zeros((size, dim), np.float32)}, batch_size=size).request
        request.enqueued_ns = NOW - age_us * 1000
        requests.append(request)
    return plan, requests


@settings(max_examples=500)
@given(situations())
def test_the_decision_is_that_of_the_reference(situation: tuple[DynamicBatchingPlan, list[InferRequest]]) -> None:
    plan, requests = situation
    what, number, reason = reference(plan, requests)
    decision = decide(plan, requests)
    if isinstance(decision, Dispatch):
        assert ("run", decision.count, decision.reason) == (what, number, reason)
        assert sum(request.batch_size for request in requests[:number]) == decision.size
        assert decision.size <= max(plan.max_batch_size, 1)
    elif isinstance(decision, Wait):
        assert ("wait", NOW + number) == (what, decision.until_ns)
        queued = sum(request.batch_size for request in requests)
        assert min(size for size in plan.preferred_batch_sizes if size > queued) == decision.wake_size
    else:
        assert what == "nothing"

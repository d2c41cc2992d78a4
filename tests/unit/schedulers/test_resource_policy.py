"""Who gets resources next: nobody more than there are, in order, without starving and without holding up who needs others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.plan import InstancePlan, ResourceNeed
from naiad.errors import InferenceServerError
from naiad.schedulers.rate_limiter.capacity import capacity, joined, needs_of
from naiad.schedulers.rate_limiter.policy import GLOBAL, MOST_PASSES, Claim, ResourcePolicy

R, S = ("R", GLOBAL), ("S", GLOBAL)


def policy_of(**counts: int) -> ResourcePolicy:
    policy = ResourcePolicy()
    policy.capacity = {(name, GLOBAL): count for name, count in counts.items()}
    return policy


def claims(policy: ResourcePolicy, *needs: dict, priority: int = 1) -> list[Claim]:
    made = [Claim(each, priority) for each in needs]
    for claim in made:
        policy.wait(claim)
    return made


def test_the_first_gets_what_there_is_and_the_second_when_it_is_given_back():
    policy = policy_of(R=1)
    first, second = claims(policy, {R: 1}, {R: 1})
    assert (policy.next(), policy.next()) == (first, None)
    policy.release(first)
    assert policy.next() is second


def test_who_has_run_less_times_its_priority_goes_first():
    policy = policy_of(R=1)
    often, seldom = Claim({R: 1}, 1), Claim({R: 1}, 10)
    runs = []
    for claim in (seldom, often):
        policy.wait(claim)
    for _ in range(22):
        claim = policy.next()
        runs.append(claim)
        policy.release(claim)
        policy.wait(claim)
    assert (runs.count(seldom), runs.count(often)) == (2, 20)


def test_who_needs_other_things_passes_one_that_waits():
    policy = policy_of(R=1, S=1)
    held, waits, other = claims(policy, {R: 1}, {R: 1}, {S: 1})
    assert (policy.next(), policy.next(), policy.next()) == (held, other, None)
    assert list(policy.waiting) == [waits]


def test_who_needs_less_of_the_same_does_not_pass_one_that_needs_more():
    policy = policy_of(R=2)
    held, large, small = claims(policy, {R: 1}, {R: 2}, {R: 1})
    assert (policy.next(), policy.next()) == (held, None)
    policy.release(held)
    assert (policy.next(), policy.next()) == (large, None)
    policy.release(large)
    assert policy.next() is small


def test_one_that_needs_two_things_which_are_never_free_together_gets_its_turn():
    policy = policy_of(R=1, S=1)
    for claim in claims(policy, {R: 1}, {S: 1}):
        assert policy.next() is claim
    [both] = claims(policy, {R: 1, S: 1})
    releases = 0
    while not both.is_running:
        releases += 1
        [ended] = policy.holders((R, S)[releases % 2]) or policy.holders((S, R)[releases % 2])
        # The next one that needs it is there before it is free.
        claims(policy, ended.needs)
        policy.release(ended)
        policy.next()
    assert MOST_PASSES < releases <= MOST_PASSES + 2


def test_nobody_gets_what_one_needs_that_was_passed_too_often_until_nothing_moves():
    policy = policy_of(R=1, S=1)
    [held] = claims(policy, {R: 1})
    policy.next()
    [head] = claims(policy, {R: 1, S: 1})
    for _ in range(MOST_PASSES):
        [passing] = claims(policy, {S: 1})
        assert policy.next() is passing
        policy.release(passing)
    [last] = claims(policy, {S: 1})
    assert policy.next() is None
    assert policy.next(is_stalled=True) is last
    policy.release(last)
    policy.release(held)
    assert policy.next() is head


NEEDS = st.dictionaries(st.sampled_from([R, S]), st.integers(1, 3), max_size=2)


@given(st.lists(st.tuples(NEEDS, st.integers(0, 3)), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_no_more_is_given_than_there_is_everybody_runs_and_nothing_is_left_over(wanted, random):
    policy = policy_of(R=3, S=3)
    everybody = [Claim(needs, priority) for needs, priority in wanted]
    left, running, ran = list(everybody), [], 0
    while left or running:
        if left and (not running or random.random() < 0.5):
            policy.wait(left.pop())
        while (claim := policy.next()) is not None:
            running.append(claim)
        for name, most in policy.capacity.items():
            assert sum(claim.needs.get(name, 0) for claim in running) <= most
        # With nothing running everything is free, so nobody can be left waiting.
        assert running or not policy.waiting
        if running:
            policy.release(running.pop(random.randrange(len(running))))
            ran += 1
    assert ran == len(everybody)
    assert [policy.lacking(claim) for claim in everybody] == [[]] * len(everybody)


def instance(*needs: ResourceNeed, device: int = -1) -> InstancePlan:
    return InstancePlan("m_0", "CPU", device, "m", resources=needs)


def test_resources_of_a_device_are_others_on_another_device_and_those_of_one_name_add_up():
    need = ResourceNeed("R", 2, False)
    assert needs_of(instance(need, need, device=0)) == {("R", 0): 4}
    assert needs_of(instance(need, device=1)) == {("R", 1): 2}
    assert needs_of(instance(ResourceNeed("R", 1, True), device=1)) == {R: 1}
    assert needs_of(instance(ResourceNeed("R", 0, True))) == {}


def test_there_are_as_many_as_the_greediest_needs_unless_the_operator_says_so():
    needs = [{R: 1, ("D", 0): 1}, {R: 3, ("D", 1): 2}]
    assert capacity(needs, {}) == {R: 3, ("D", 0): 1, ("D", 1): 2}
    limits = joined([("R", 4, None), ("D", 9, None), ("D", 5, 1), ("D", 6, 1)])
    assert capacity(needs, limits) == {R: 4, ("D", 0): 9, ("D", 1): 6}


@pytest.mark.parametrize(
    ("needs", "limits", "text"),
    [
        (
            [{R: 2}],
            {("R", None): 1},
            (
                'Resource count for "R" is limited to 1 which will prevent scheduling of one or more model instances, '
                "the minimum required count is 2"
            ),
        ),
        ([{R: 1}, {("R", 0): 1}], {}, 'Resource "R" is present as both global and device-specific resource'),
    ],
)
def test_what_can_never_be_is_refused(needs, limits, text):
    with pytest.raises(InferenceServerError) as caught:
        capacity(needs, limits)
    assert caught.value.message == text

"""A model earns the event loop by its own short runs and loses it by a long one."""

from naiad.execution.placement import LONG_NS, MAX_RUN_LENGTH, SHORT_NS, TURN_NS, Placement, PlacementMode, TurnBudget

FAST, SLOW = SHORT_NS // 10, SHORT_NS * 3
SIZE = 64


def learn(placement: Placement, runs: int, cpu_ns: int = FAST, wall_ns: int = FAST) -> None:
    for _ in range(runs):
        placement.observe_thread(SIZE, cpu_ns, wall_ns)


def test_a_model_starts_on_a_thread():
    assert not Placement(PlacementMode.AUTO).is_in_place(SIZE)


def test_a_window_of_short_runs_earns_the_loop():
    placement = Placement(PlacementMode.AUTO)
    learn(placement, 127)
    assert not placement.is_in_place(SIZE)
    learn(placement, 1)
    assert placement.is_in_place(SIZE)


def test_a_few_slow_runs_in_a_window_are_forgiven_and_more_are_not():
    for slow_runs, expected in ((4, True), (5, False)):
        placement = Placement(PlacementMode.AUTO)
        learn(placement, slow_runs, SLOW, SLOW)
        learn(placement, 128 - slow_runs)
        assert placement.is_in_place(SIZE) is expected


def test_waiting_for_the_gil_does_not_count_but_sleeping_does():
    waiting = Placement(PlacementMode.AUTO)
    learn(waiting, 100, FAST, SLOW)
    learn(waiting, 28, FAST, FAST)
    assert waiting.is_in_place(SIZE)
    sleeping = Placement(PlacementMode.AUTO)
    learn(sleeping, 1280, FAST, SLOW)
    assert not sleeping.is_in_place(SIZE)


def test_sizes_are_learnt_apart():
    placement = Placement(PlacementMode.AUTO)
    learn(placement, 128)
    assert placement.is_in_place(SIZE)
    assert placement.is_in_place(SIZE + 1)
    assert not placement.is_in_place(SIZE * 2)


def test_one_long_run_in_place_demotes_and_the_next_proof_is_longer():
    placement = Placement(PlacementMode.AUTO)
    learn(placement, 128)
    placement.observe_in_place(SIZE, LONG_NS + 1)
    assert not placement.is_in_place(SIZE)
    learn(placement, 128)
    assert not placement.is_in_place(SIZE)
    learn(placement, 128)
    assert placement.is_in_place(SIZE)


def test_too_many_slow_runs_in_place_within_a_window_demote():
    placement = Placement(PlacementMode.AUTO)
    learn(placement, 128)
    for _ in range(4):
        placement.observe_in_place(SIZE, SLOW)
    assert placement.is_in_place(SIZE)
    placement.observe_in_place(SIZE, SLOW)
    assert not placement.is_in_place(SIZE)


def test_runs_in_place_are_counted():
    placement = Placement(PlacementMode.IN_PLACE)
    placement.observe_in_place(SIZE, FAST)
    assert placement.in_place_runs == 1


def test_the_config_decides_where_it_says_so():
    assert Placement(PlacementMode.IN_PLACE).is_in_place(SIZE)
    assert not Placement(PlacementMode.THREAD).is_in_place(SIZE)


def test_long_trust_makes_one_long_run_cost_a_single_window():
    placement = Placement(PlacementMode.AUTO)
    learn(placement, 128)
    for _ in range(128 * 8):
        placement.observe_in_place(SIZE, FAST)
    placement.observe_in_place(SIZE, LONG_NS + 1)
    assert not placement.is_in_place(SIZE)
    learn(placement, 128)
    assert placement.is_in_place(SIZE)


def test_a_hand_over_takes_as_many_batches_as_half_a_millisecond_holds():
    placement = Placement(PlacementMode.THREAD)
    assert placement.run_length == 1
    learn(placement, 20, FAST, 50_000)
    assert placement.run_length in (9, 10)
    learn(placement, 200, FAST, 1_000)
    assert placement.run_length == MAX_RUN_LENGTH
    learn(placement, 200, FAST, 5_000_000)
    assert placement.run_length == 1


class TestTurnBudget:
    """All in-place work together may hold the loop for a millisecond a turn."""

    def test_the_next_turn_has_it_again(self):
        later = []
        budget = TurnBudget(later.append)
        assert budget.is_free
        budget.spend(TURN_NS)
        assert not budget.is_left
        assert len(later) == 1
        later.pop()()
        assert budget.is_free

    def test_deferred_work_goes_first_come_first_served_and_before_what_is_new(self):
        later, order = [], []
        budget = TurnBudget(later.append)

        def work(name):
            def run():
                order.append(name)
                budget.spend(TURN_NS)

            return run

        budget.spend(TURN_NS)
        for name in "abc":
            budget.defer(work(name))
        while later:
            assert not budget.is_free
            later.pop(0)()
        assert order == ["a", "b", "c"]

    def test_work_that_defers_its_rest_goes_behind_the_others(self):
        later, order = [], []
        budget = TurnBudget(later.append)

        def work(name, parts):
            def run():
                order.append(name)
                budget.spend(TURN_NS)
                if parts > 1:
                    budget.defer(work(name, parts - 1))

            return run

        budget.spend(TURN_NS)
        budget.defer(work("a", 3))
        budget.defer(work("b", 2))
        while later:
            later.pop(0)()
        assert order == ["a", "b", "a", "b", "a"]
        assert budget.is_free

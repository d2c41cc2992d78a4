"""The timer that is set anew for next to nothing."""

from __future__ import annotations

from manual_clock import ManualClock

from naiad.schedulers.alarm import Alarm


def make(clock: ManualClock) -> tuple[Alarm, list[int]]:
    rings: list[int] = []
    return Alarm(clock, lambda: rings.append(clock.now)), rings


def test_it_rings_at_the_time_it_was_asked_for() -> None:
    clock = ManualClock(100)
    alarm, rings = make(clock)
    alarm.wake_at(150)
    clock.advance(49)
    assert rings == []
    clock.advance(1)
    assert rings == [150]


def test_an_earlier_time_replaces_a_later_one() -> None:
    clock = ManualClock(100)
    alarm, rings = make(clock)
    alarm.wake_at(150)
    alarm.wake_at(120)
    clock.advance(1000)
    assert rings == [120]


def test_a_later_time_makes_no_timer_while_an_earlier_one_is_set() -> None:
    clock = ManualClock(100)
    alarm, _ = make(clock)
    for wake_ns in range(150, 10_000):
        alarm.wake_at(wake_ns)
    assert (clock.timers_made, clock.timer_count()) == (1, 1)


def test_a_time_that_has_passed_rings_at_once() -> None:
    clock = ManualClock(100)
    alarm, rings = make(clock)
    alarm.wake_at(40)
    clock.advance(0)
    assert rings == [100]


def test_it_can_be_called_off_and_set_again() -> None:
    clock = ManualClock(100)
    alarm, rings = make(clock)
    alarm.wake_at(150)
    alarm.cancel()
    alarm.cancel()
    assert clock.timer_count() == 0
    alarm.wake_at(170)
    clock.advance(1000)
    assert rings == [170]

"""A worker that dies again and again is started ever more seldom."""

from naiad.execution.process.life.backoff import Backoff


def test_delays_double_up_to_the_longest():
    backoff = Backoff(0.1, 1.0)
    assert [backoff.next_delay_s() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_defaults_go_from_a_tenth_of_a_second_to_half_a_minute():
    backoff = Backoff()
    delays = [backoff.next_delay_s() for _ in range(20)]
    assert (delays[0], delays[-1]) == (0.1, 30.0)


def test_a_worker_that_has_proved_good_begins_again():
    backoff = Backoff(0.5, 30)
    for _ in range(5):
        backoff.next_delay_s()
    backoff.reset()
    assert backoff.next_delay_s() == 0.5


def test_no_delay_is_longer_than_the_longest():
    backoff = Backoff(5.0, 1.0)
    assert [backoff.next_delay_s(), backoff.next_delay_s()] == [1.0, 1.0]
    backoff.reset()
    assert backoff.next_delay_s() == 1.0

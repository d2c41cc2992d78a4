"""When requests arrive: constant, at random, in bursts, on and off. Each is the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of `size` items, `at_ns` after the start; `key` is the length of its input X, for models of variable shapes.

    `sequence` is the sequence that it belongs to, 0 for none, whose first and last request say so.
    """

    at_ns: int
    size: int = 1
    priority: int = 0
    timeout_us: int = 0
    key: int = 1
    sequence: int = 0
    is_start: bool = False
    is_end: bool = False


def _at(times_s: Iterable[float]) -> list[Arrival]:
    return [Arrival(round(time * SECOND)) for time in times_s]


def constant(rate: float, count: int) -> list[Arrival]:
    """Return `count` arrivals at equal distances, `rate` a second."""
    return _at(index / rate for index in range(count))


def poisson(rate: float, count: int, seed: int = 1) -> list[Arrival]:
    """Return `count` arrivals that know nothing of each other, `rate` a second on average."""
    random, now, times = Random(seed), 0.0, []
    for _ in range(count):
        now += random.expovariate(rate)
        times.append(now)
    return _at(times)


def bursts(rate: float, count: int, burst: int = 8, gap_s: float = 0.0002, seed: int = 1) -> list[Arrival]:
    """Return bursts of `burst` arrivals `gap_s` apart, which begin at random, `rate` arrivals a second on average."""
    random, now, times = Random(seed), 0.0, []
    while len(times) < count:
        now += random.expovariate(rate / burst)
        times += [now + index * gap_s for index in range(burst)]
    return _at(sorted(times[:count]))


def on_off(rate: float, count: int, period_s: float = 0.5, seed: int = 1) -> list[Arrival]:
    """Return arrivals at random at twice the rate in the first half of each period and none in the other."""
    half = period_s / 2
    active = [arrival.at_ns / SECOND for arrival in poisson(2 * rate, count, seed)]
    return _at(time + int(time / half) * half for time in active)

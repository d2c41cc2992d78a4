"""How soon the next request comes after a decision, by how many were at hand: learnt from what came after earlier ones.

Owns these counts. By what is at hand, since who sends in bursts, or waits for answers before it sends again, sends nothing more
once all of it is there.
"""

from __future__ import annotations

STEP_NS = 1_000_000
"""The shortest wait: event loops round timers to a millisecond."""
STEPS = 8
"""Waits are 1, 2, 4, … steps: the longest is 128 ms."""
_NEEDED = 8
_KEPT = 64
_MOST_COUNTS = 64


class _Gaps:
    """`counts[i]` gaps, `sums_ns[i]` together, that a wait of 2^i steps and no shorter one would have seen the end of."""

    __slots__ = ("counts", "sums_ns", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.counts = [0.0] * STEPS
        self.sums_ns = [0.0] * STEPS

    def add(self, gap_ns: int) -> None:
        if self.total >= _KEPT:
            self.total /= 2
            self.counts = [count / 2 for count in self.counts]
            self.sums_ns = [sum_ns / 2 for sum_ns in self.sums_ns]
        self.total += 1
        index = (gap_ns // STEP_NS).bit_length()
        if index < STEPS:
            self.counts[index] += 1
            self.sums_ns[index] += gap_ns


class NextArrivals:
    """The gaps that followed decisions over `count` requests. Of many at hand all numbers are one."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: dict[int, _Gaps] = {}

    def add(self, count: int, gap_ns: int) -> None:
        """Note that the next request came `gap_ns` after a decision over `count` requests."""
        key = min(count, _MOST_COUNTS)
        gaps = self._gaps.get(key)
        if gaps is None:
            gaps = self._gaps[key] = _Gaps()
        gaps.add(gap_ns)

    def best_wait(self, count: int, saved_ns: float, longest_ns: float) -> int:
        """Return the wait in nanoseconds, of `longest_ns` at most, that gains most, 0 when none does.

        One that comes after a gap within the wait gains `saved_ns` less the gap for it and each of the `count` at hand; when
        none comes, these have lost the wait.
        """
        gaps = self._gaps.get(min(count, _MOST_COUNTS))
        if gaps is None or gaps.total < _NEEDED:
            return 0
        best_ns, best_gain = 0, 0.0
        came = gap_sum_ns = 0.0
        wait_ns = STEP_NS
        for index in range(STEPS):
            if wait_ns > longest_ns:
                break
            came += gaps.counts[index]
            gap_sum_ns += gaps.sums_ns[index]
            gain = (came * saved_ns - (count + 1) * gap_sum_ns - (gaps.total - came) * count * wait_ns) / gaps.total
            if gain > best_gain:
                best_ns, best_gain = wait_ns, gain
            wait_ns *= 2
        return best_ns

    def likely_wait(self, count: int, longest_ns: float) -> int:
        """Return the shortest wait in nanoseconds, of `longest_ns` at most, within which half of the next ones came; 0 when
        they didn't, or when too little is known.
        """
        gaps = self._gaps.get(min(count, _MOST_COUNTS))
        if gaps is None or gaps.total < _NEEDED:
            return 0
        came, wait_ns = 0.0, STEP_NS
        for index in range(STEPS):
            if wait_ns > longest_ns:
                break
            came += gaps.counts[index]
            if came * 2 >= gaps.total:
                return wait_ns
            wait_ns *= 2
        return 0


class ComingArrivals:
    """How many requests come while a batch of `count` runs. `arrival_count` is to be raised by each."""

    __slots__ = ("_began", "_means", "arrival_count")

    def __init__(self) -> None:
        self.arrival_count = 0
        self._began: dict[int, tuple[int, int]] = {}
        self._means: dict[int, float] = {}

    def began(self, count: int, now_ns: int) -> None:
        """Note that a batch of `count` requests goes to an instance now."""
        if len(self._began) >= _MOST_COUNTS:
            self._began.clear()  # What never ran stays in here.
        self._began[now_ns] = (min(count, _MOST_COUNTS), self.arrival_count)

    def ended(self, started_ns: int) -> None:
        """Note that the batch which began then has ended."""
        began = self._began.pop(started_ns, None)
        if began is not None:
            count, before = began
            came = self.arrival_count - before
            mean = self._means.get(count, came)
            self._means[count] = mean + (came - mean) / 16

    def count(self, count: int) -> float:
        """Return how many come while `count` run, 0.0 when nothing is known of it."""
        return self._means.get(min(count, _MOST_COUNTS), 0.0)

"""What an idle instance runs when the configuration says nothing of it: a function of what was measured.

Owns two decisions: how much of the queue to take, and when to wait for more. Which requests may run together is
`dynamic.policy`'s, as for a model with numbers; costs and arrivals are kept in `costs` and `arrivals`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice

from naiad.request.batch import CloseReason
from naiad.request.request import InferRequest
from naiad.schedulers.dynamic.adaptive.arrivals import STEP_NS, ComingArrivals, NextArrivals
from naiad.schedulers.dynamic.adaptive.costs import RunCosts
from naiad.schedulers.dynamic.policy import BatchKey, BatchRules, Dispatch, Wait, batch_key, next_batch

_log = logging.getLogger(__name__)

RUNS_BEFORE = 8
"""So many runs are measured before anything is done otherwise than without a delay."""
# A shorter batch must promise a tenth: what is measured is never exact.
_WORTHWHILE = 0.9
# Shorter batches may take this much more of the instances' time; more when others have nothing to do.
_DEARER = 1.05
_DEARER_APART = 1.5
# What the chance of company within a target is worth: found by the simulator to lose no answer in time.
_LEAST_SAVED = 0.25
_ROOM = 1.25
_TOLD_EVERY = 256


class _Decided:
    """The last decision over a batch that could still grow, until the next arrival tells how good it was."""

    __slots__ = ("at_ns", "count", "until_ns")

    def __init__(self, count: int, at_ns: int) -> None:
        self.count = count
        self.at_ns = at_ns
        self.until_ns = at_ns


class AdaptivePolicy:
    """See `BatchPolicy` and `LoadObserver`. Decides as without a delay, but for two things that measured costs may call for.

    It takes less than it could when smaller batches, one after the other or on several idle instances, answer sooner and cost
    the instances hardly more. And it waits for one more request where that is expected to shorten the sum of the latencies of
    those at hand and of the one to come; with `target_ns`, in which nearly all should be answered, also where it saves time of
    the instances and leaves the oldest enough. `name` is the model's, for the log.

    `rules` have no delay. `instances` returns how many instances are idle and how many there are.
    """

    __slots__ = ("_coming", "_costs", "_decided", "_instances", "_name", "_next", "_rules", "_target_ns", "_waits")

    def __init__(self, rules: BatchRules, instances: Callable[[], tuple[int, int]], target_ns: int = 0, name: str = "") -> None:
        self._rules = rules
        self._instances = instances
        self._target_ns = target_ns
        self._name = name
        self._costs = RunCosts()
        self._next = NextArrivals()
        self._coming = ComingArrivals()
        self._decided: _Decided | None = None
        self._waits: dict[int, int] = {}

    def decide(self, queue: Iterable[InferRequest], now_ns: int) -> Dispatch | Wait | None:
        """See `BatchPolicy.decide`."""
        decision = next_batch(queue, self._rules, now_ns)
        costs = self._costs
        if not isinstance(decision, Dispatch) or costs.run_count < RUNS_BEFORE:
            return decision
        if decision.reason is CloseReason.INSTANCE_FREE and costs.run_ns(decision.size) >= STEP_NS:
            decided = self._decided_over(queue, decision, now_ns)
            if now_ns < decided.until_ns:
                return Wait(decided.until_ns, decision.size + 1, self._key(queue))
            if decided.until_ns > decided.at_ns:
                decision = Dispatch(decision.count, decision.size, CloseReason.DELAY)
        if decision.count > 1 and costs.is_measured(decision.size):
            decision = self._smaller(queue, decision)
        self._coming.began(decision.count, now_ns)
        return decision

    def arrived(self, size: int, now_ns: int) -> None:
        """See `LoadObserver.arrived`."""
        self._coming.arrival_count += 1
        decided = self._decided
        if decided is not None:
            self._next.add(decided.count, now_ns - decided.at_ns)
            self._decided = None

    def ran(self, size: int, started_ns: int, ended_ns: int) -> None:
        """See `LoadObserver.ran`."""
        self._costs.add(size, ended_ns - started_ns)
        self._coming.ended(started_ns)
        if self._costs.run_count % _TOLD_EVERY == 0 and _log.isEnabledFor(logging.DEBUG):
            waits = {count: wait_ns / 1e6 for count, wait_ns in sorted(self._waits.items())}
            _log.debug(
                "model '%s' batches by ms of a run of so many items %s, and waits so many ms with so many requests at hand %s",
                self._name,
                self._costs.table(),
                waits,
            )

    def _decided_over(self, queue: Iterable[InferRequest], decision: Dispatch, now_ns: int) -> _Decided:
        """Return until when to wait for one more; what was said for these requests stays, however often it is asked."""
        decided = self._decided
        if decided is None or decided.count != decision.count:
            decided = self._decided = _Decided(decision.count, now_ns)
            oldest_ns = min([request.enqueued_ns for request in islice(queue, decision.count)])
            wait_ns = self._waits[decision.count] = self._wait_ns(decision, now_ns - oldest_ns)
            decided.until_ns += wait_ns
        return decided

    def _wait_ns(self, decision: Dispatch, age_ns: int) -> int:
        """Return how long to wait for one more: until the oldest has waited as long as a run takes, or by the target."""
        costs, count = self._costs, decision.count
        run_ns, item = costs.run_ns(decision.size), decision.size / count
        grown_ns, alone_ns = costs.run_ns(decision.size + item), costs.run_ns(item)
        longest_ns = run_ns - age_ns
        if self._target_ns:
            room_ns = self._target_ns - _ROOM * grown_ns - age_ns
            if alone_ns + run_ns - grown_ns >= _LEAST_SAVED * alone_ns:
                wait_ns = self._next.likely_wait(count, room_ns)
                if wait_ns:
                    return wait_ns
            longest_ns = min(longest_ns, room_ns)
        saved_ns = self._blocked_ns(count, run_ns) + alone_ns - run_ns - (count + 1) * (grown_ns - run_ns)
        return self._next.best_wait(count, saved_ns, longest_ns) if saved_ns > 0 else 0

    def _blocked_ns(self, count: int, run_ns: float) -> float:
        """Return how long one that comes just too late would wait for an instance: for the first of all to end, if none is
        idle; while others are, by the share of those that come meanwhile which would find none.
        """
        idle, total = self._instances()
        blocked_ns = run_ns * 2 / (total + 1)
        if idle > 1:
            coming = self._coming.count(count)
            blocked_ns *= max(coming - (idle - 1), 0.0) / coming if coming else 0.0
        return blocked_ns

    def _smaller(self, queue: Iterable[InferRequest], decision: Dispatch) -> Dispatch:
        """Return a shorter head of the queue than `decision` when it is better by a tenth, else `decision`. A size next to
        the best that was never measured is tried.
        """
        costs, whole = self._costs, decision.size
        idle, _ = self._instances()
        best, best_ns = whole, costs.run_ns(whole) * _WORTHWHILE
        dearest = costs.run_ns(whole) / whole * (_DEARER_APART if idle > 1 else _DEARER)
        size = half = 1 << (whole - 1).bit_length() - 1
        while size:
            run_ns = costs.run_ns(size)
            # On average half of the batches are before one, and then comes its own.
            answered_ns = run_ns * (max(whole / (size * idle), 1.0) + 1) / 2
            if answered_ns < best_ns and run_ns <= dearest * size and costs.is_measured(size):
                best, best_ns = size, answered_ns
            size //= 2
        for tried in (half,) if best == whole else (best // 2, best * 2):
            if 0 < tried < whole and not costs.is_measured(tried):
                best = tried
                break
        return decision if best == whole else _head(queue, decision, best)

    def _key(self, queue: Iterable[InferRequest]) -> BatchKey:
        return batch_key(next(iter(queue)), self._rules) if self._rules.has_key else ()


def _head(queue: Iterable[InferRequest], decision: Dispatch, size: int) -> Dispatch:
    """Return the shortest head of the queue that holds `size` items, which is at most that of `decision`."""
    count = items = 0
    for request in queue:
        count += 1
        items += request.batch_size
        if items >= size:
            break
    return Dispatch(count, items, CloseReason.PREFERRED) if count < decision.count else decision

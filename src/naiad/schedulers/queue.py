"""The queue of one model version: priority levels, limits, deadlines, and requests that leave before their turn.

Owns the order in which requests are served and which of them are too many or too late. Doesn't own time, timers or batches:
`dynamic.policy` reads the queue, a scheduler takes from it.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import chain

from naiad.config.plan import DynamicBatchingPlan, QueuePolicy
from naiad.request.request import InferRequest
from naiad.schedulers.deadlines import Deadlines
from naiad.schedulers.fairness import FairRequests
from naiad.schedulers.refusals import queue_full

# Levels are made when a request first uses them and a client may name any of 2^32: beyond this many, empty ones are forgotten.
_MAX_LEVELS_KEPT = 16


class _Level:
    """One priority level: the requests in time, each with the ticket of its deadline (0 for none), and those that are late."""

    __slots__ = ("late", "number", "policy", "waiting")

    def __init__(self, number: int, policy: QueuePolicy, client_weights: Mapping[str, int] | None) -> None:
        self.number = number
        self.policy = policy
        self.waiting: OrderedDict[InferRequest, int] | FairRequests = (
            OrderedDict() if client_weights is None else FairRequests(client_weights)
        )
        self.late: OrderedDict[InferRequest, None] = OrderedDict()

    def __lt__(self, other: _Level) -> bool:
        return self.number < other.number

    def __len__(self) -> int:
        return len(self.waiting) + len(self.late)

    @property
    def is_full(self) -> bool:
        """Whether the level holds as many requests as its policy allows."""
        return 0 < self.policy.max_size <= len(self)


class PriorityQueue:
    """Requests in the order in which they are to be served; iterating gives them in that order.

    Level 1 goes before level 2 and so on. Within a level requests keep the order of `add`, or clients have fair shares of it
    where the plan has `client_weights`; but those whose deadline passed under the DELAY action go behind those in time. `size`
    is the sum of the batch sizes; `len` counts requests. A request counts against its level's limit as long as it is in here.
    """

    __slots__ = ("_deadlines", "_levels", "_order", "_plan", "size")

    def __init__(self, plan: DynamicBatchingPlan) -> None:
        self._plan = plan
        self._levels: dict[int, _Level] = {}
        self._order: list[_Level] = []
        self._deadlines = Deadlines()
        self.size = 0

    def __len__(self) -> int:
        return sum(map(len, self._order))

    def __bool__(self) -> bool:
        return self.size > 0

    def __iter__(self) -> Iterator[InferRequest]:
        return chain.from_iterable([part for level in self._order for part in (level.waiting, level.late) if part])

    def is_full_for(self, request: InferRequest) -> bool:
        """Return whether the level of `request` has reached its `max_queue_size`."""
        return self._level_of(request).is_full

    def add(self, request: InferRequest, now_ns: int) -> int | None:
        """Append `request` to its level; return its deadline in nanoseconds, None when it may wait for ever.

        Raises InferenceServerError (UNAVAILABLE, REJECTED) when the level has reached its `max_queue_size`.
        """
        level = self._level_of(request)
        if level.is_full:
            raise queue_full(request)
        self.size += request.batch_size
        timeout_us = _timeout_us(level.policy, request)
        if timeout_us == 0:
            level.waiting[request] = 0
            return None
        deadline_ns = now_ns + timeout_us * 1000
        level.waiting[request] = self._deadlines.add(request, deadline_ns)
        return deadline_ns

    def remove(self, request: InferRequest) -> None:
        """Take `request` out, wherever it stands. Raises KeyError when it isn't in the queue."""
        level = self._level_of(request)
        ticket = level.waiting.pop(request, None)
        if ticket is None:
            del level.late[request]
        elif ticket:
            self._deadlines.discard(ticket)
        self.size -= request.batch_size

    def take(self, count: int) -> list[InferRequest]:
        """Take out the first `count` requests. There must be as many."""
        taken: list[InferRequest] = []
        for level in self._order:
            while level.waiting and len(taken) < count:
                request, ticket = level.waiting.popitem(last=False)
                if ticket:
                    self._deadlines.discard(ticket)
                taken.append(request)
            while level.late and len(taken) < count:
                taken.append(level.late.popitem(last=False)[0])
        self.size -= sum([request.batch_size for request in taken])
        return taken

    def next_deadline_ns(self) -> int | None:
        """Return when the next deadline passes, None when no request has one."""
        return self._deadlines.next_ns() if self._deadlines else None

    def expire(self, now_ns: int) -> list[InferRequest]:
        """Apply the deadlines up to `now_ns`: take out and return those to refuse, earliest first; move the others back."""
        if not self._deadlines:
            return []
        refused = []
        for request in self._deadlines.pop_passed(now_ns):
            level = self._level_of(request)
            del level.waiting[request]
            if level.policy.is_delay:
                level.late[request] = None
            else:
                self.size -= request.batch_size
                refused.append(request)
        return refused

    def reject_timeout_us(self, request: InferRequest) -> int:
        """Return how long `request` may wait before it is refused, 0 for ever: under DELAY it is never."""
        policy = self._level_of(request).policy
        return 0 if policy.is_delay else _timeout_us(policy, request)

    def items_ahead(self, request: InferRequest) -> float:
        """Return about how many items would be served before `request`, which isn't in the queue: those of its level that are
        in time, and all of the levels above. Items are counted as if all requests had the same number of them.
        """
        own = self._level_of(request)
        if len(self._order) == 1 and not own.late:
            above, level_items = 0.0, float(self.size)
        else:
            items = self.size / (len(self) or 1)
            above = sum([len(level) for level in self._order[: self._order.index(own)]]) * items
            level_items = len(own.waiting) * items
        if isinstance(own.waiting, FairRequests):
            level_items = min(level_items, own.waiting.items_ahead(request))
        return above + level_items

    def level_count(self) -> int:
        """Return how many levels are kept, empty ones included."""
        return len(self._levels)

    def _level_of(self, request: InferRequest) -> _Level:
        """Return the level of the request: its own priority, the default one for 0 and for numbers above the last level."""
        plan = self._plan
        number = request.priority if 0 < request.priority <= plan.levels else plan.default_level if plan.levels else 0
        level = self._levels.get(number)
        return level if level is not None else self._make_level(number)

    def _make_level(self, number: int) -> _Level:
        if len(self._order) >= _MAX_LEVELS_KEPT:
            self._order = [level for level in self._order if len(level)]
            self._levels = {level.number: level for level in self._order}
        policy = self._plan.policies.get(number, self._plan.default_policy)
        level = _Level(number, policy, self._plan.client_weights)
        self._levels[number] = level
        insort(self._order, level)
        return level


def _timeout_us(policy: QueuePolicy, request: InferRequest) -> int:
    """Return how long the request may wait, 0 for ever: its own time-out can only shorten the level's, so not a limit of 0."""
    if policy.allow_timeout_override and 0 < request.timeout_us < policy.timeout_us:
        return request.timeout_us
    return policy.timeout_us

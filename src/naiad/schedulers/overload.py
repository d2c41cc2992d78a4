"""Overload of one model version: which request can't be in time, told before it queues.

Owns the estimate: how fast the last batches were, how long a request would wait behind others, and how sure that must be for a
refusal. Doesn't own time, the queue, or what is done with a refusal. Looks at what happened only, never at a configuration's
promises, so it knows nothing at first and refuses nobody then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from naiad.request.request import InferRequest
from naiad.schedulers.queue import PriorityQueue
from naiad.schedulers.refusals import too_late

# Fewer batches tell nothing: the first ones of a model are slow.
_FEWEST_BATCHES = 3
# A median of so many follows a new speed within three batches, and a single slow batch doesn't move it.
_BATCHES_KEPT = 5
# A request that waits in vain for its start costs nothing but its place in the queue, so the benefit of the doubt is its own.
_START_FACTOR = 1.25
# An answer that is late has taken an instance from one that would have been in time, so it must fit with some room: at an
# overload every request that is let in is close to the limit, and half of them would miss it by a hair.
_END_FACTOR = 0.9


class OverloadGuard:
    """Learns from batches, and refuses requests that would start after their time-out in the queue, or end after their caller's
    deadline. `max_batch_size` is what a batch holds as long as nobody has seen otherwise, 0 for one request.

    Only runs count, never the time between them. A batch's time is that of the last few of any size, its size that of the last
    few that left requests behind: small batches, which run when little comes, are no slower than full ones, so what they say
    errs on the side of letting in. Nobody is refused while an instance is idle and nothing is queued, so that a model that has
    become fast again is noticed.
    """

    __slots__ = ("_full_sizes", "_max_batch_size", "_times_ns")

    def __init__(self, max_batch_size: int) -> None:
        self._max_batch_size = max(1, max_batch_size)
        self._times_ns: deque[int] = deque(maxlen=_BATCHES_KEPT)
        self._full_sizes: deque[int] = deque(maxlen=_BATCHES_KEPT)

    def ran(self, size: int, time_ns: int, *, is_full: bool) -> None:
        """Learn of a batch of `size` items that an instance had for `time_ns`; `is_full`: it left requests in the queue."""
        self._times_ns.append(time_ns)
        if is_full:
            self._full_sizes.append(size)

    def batch_ns(self) -> int | None:
        """Return how long a batch takes, None while that isn't known."""
        return int(median(self._times_ns)) if len(self._times_ns) >= _FEWEST_BATCHES else None

    def batch_size(self) -> float:
        """Return how many items go in a batch when there are enough of them."""
        sizes = self._full_sizes
        return sum(sizes) / len(sizes) if sizes else self._max_batch_size

    def check(
        self, request: InferRequest, queue: PriorityQueue, busy_since_ns: Sequence[int], idle_count: int, now_ns: int
    ) -> None:
        """Raise RefusedError when `request`, which isn't queued yet, would be too late. `busy_since_ns` has the start of each
        batch that runs, `idle_count` is how many more could.
        """
        batch_ns = self.batch_ns()
        if batch_ns is None or not (busy_since_ns or idle_count):
            return
        timeout_ns = queue.reject_timeout_us(request) * 1000
        if not timeout_ns and request.deadline_ns is None:
            return
        start_ns = self._start_ns(queue.items_ahead(request), batch_ns, busy_since_ns, idle_count, now_ns)
        if timeout_ns and start_ns > timeout_ns * _START_FACTOR:
            raise too_late(request, "it runs", start_ns, timeout_ns)
        if request.deadline_ns is not None:
            left_ns = request.deadline_ns - now_ns
            if start_ns and start_ns + batch_ns > left_ns * _END_FACTOR:
                raise too_late(request, "it is answered", start_ns + batch_ns, left_ns)

    def _start_ns(self, items_ahead: float, batch_ns: int, busy_since_ns: Sequence[int], idle_count: int, now_ns: int) -> int:
        """Return in how many nanoseconds an instance takes what is queued behind `items_ahead`."""
        batches_ahead = int(items_ahead / self.batch_size())
        if batches_ahead < idle_count:
            return 0
        first_ns = 0 if idle_count else max(0, batch_ns - (now_ns - min(busy_since_ns)))
        turns = batches_ahead - idle_count
        if idle_count:
            turns += 1
        return first_ns + turns * batch_ns // (len(busy_since_ns) + idle_count)

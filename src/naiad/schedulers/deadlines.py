"""Deadlines of queued requests, earliest first.

Owns the order of deadlines. Doesn't own time: callers say what time it is, and what a passed deadline means.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from naiad.request.request import InferRequest

# Below this many entries the dead ones cost less than rebuilding the heap.
_SMALL_HEAP = 64


class Deadlines:
    """A heap whose entries are struck out lazily: adding costs O(log n), striking out O(1) on average.

    The heap holds tickets, never requests, so that a dead entry keeps no tensor alive; dead entries never outnumber the living
    ones by more than a constant.
    """

    __slots__ = ("_heap", "_last_ticket", "_requests")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._requests: dict[int, InferRequest] = {}
        self._last_ticket = 0

    def __len__(self) -> int:
        return len(self._requests)

    def entry_count(self) -> int:
        """Return how many entries the heap holds, dead ones included."""
        return len(self._heap)

    def add(self, request: InferRequest, deadline_ns: int) -> int:
        """Note a deadline; return the ticket (never 0) that strikes it out. Equal deadlines pass in the order of `add`."""
        self._last_ticket += 1
        self._requests[self._last_ticket] = request
        heappush(self._heap, (deadline_ns, self._last_ticket))
        return self._last_ticket

    def discard(self, ticket: int) -> None:
        """Strike out the deadline of `ticket`. Raises KeyError when it has passed or was struck out before."""
        del self._requests[ticket]
        if len(self._heap) > _SMALL_HEAP + 2 * len(self._requests):
            self._heap = [entry for entry in self._heap if entry[1] in self._requests]
            heapify(self._heap)

    def next_ns(self) -> int | None:
        """Return the earliest deadline, None when there is none."""
        heap = self._heap
        while heap and heap[0][1] not in self._requests:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_passed(self, now_ns: int) -> list[InferRequest]:
        """Take out the requests whose deadline is `now_ns` or earlier, in the order of their deadlines."""
        heap, passed = self._heap, []
        while heap and heap[0][0] <= now_ns:
            request = self._requests.pop(heappop(heap)[1], None)
            if request is not None:
                passed.append(request)
        return passed

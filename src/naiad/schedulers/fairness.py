"""Fair shares of one priority level among clients: weighted start-time fair queueing.

Owns whose request is next. Doesn't own who a client is (a request says it) nor weights (the operator's). It stands in the
place of a level's ordered dict, and has of that what a level uses.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from naiad.request.request import InferRequest

# Clients with nothing queued that had more than their share; beyond it, the one with the least to make up for is forgotten.
_MOST_REMEMBERED = 4096
_SMALL_HEAP = 64


class _Client:
    """A client with requests queued. `start` is the virtual time at which the first of them is due, `number` unique."""

    __slots__ = ("items", "name", "number", "requests", "start", "weight")

    def __init__(self, name: str, weight: int, start: float, number: int) -> None:
        self.name = name
        self.weight = weight
        self.start = start
        self.number = number
        self.requests: OrderedDict[InferRequest, int] = OrderedDict()
        self.items = 0

    def place(self) -> tuple[float, int, _Client]:
        """Return what the order goes by."""
        return (self.start, self.number, self)


class FairRequests:
    """Requests with their tickets, in the order in which they are to be served: those of a client in the order of their coming,
    and clients that always have some queued get items by `weights`, 1 where there is none. Requests without a client are one's.

    Each item that is taken moves the virtual time on by its part of all weights, and its client's next start by its part of the
    client's own; the earliest start is next. Who comes new starts now: behind nobody's queue, with nothing saved up. Who
    had more than a share starts where that was left, also after having been away. So whoever is queued gets a turn.

    Adding and taking cost O(log c), c the clients with something queued, and moving as many pointers.
    """

    __slots__ = ("_clients", "_count", "_ended", "_finishes", "_now", "_number", "_order", "_weight", "_weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._clients: dict[str, _Client] = {}
        self._order: list[tuple[float, int, _Client]] = []
        # Clients with nothing queued that are ahead of the virtual time, and when it has caught up with them, as a heap.
        self._ended: dict[str, float] = {}
        self._finishes: list[tuple[float, str]] = []
        # The sum of the weights of both.
        self._weight = 0
        self._now = 0.0
        self._number = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[InferRequest]:
        """Yield them as `popitem` would take them; what isn't asked for costs nothing."""
        order, index, number = self._order, 0, self._number
        later: list[tuple[float, int, InferRequest, Iterator[InferRequest], int]] = []
        while later or index < len(order):
            if later and (index == len(order) or later[0][:2] < order[index][:2]):
                start, _, request, rest, weight = heappop(later)
            else:
                start, _, client = order[index]
                index += 1
                rest, weight = iter(client.requests), client.weight
                request = next(rest)
            yield request
            following = next(rest, None)
            if following is not None:
                number += 1
                heappush(later, (start + request.batch_size / weight, number, following, rest, weight))

    def __setitem__(self, request: InferRequest, ticket: int) -> None:
        client = self._clients.get(request.client)
        if client is None:
            client = self._begin(request.client)
        client.requests[request] = ticket
        client.items += request.batch_size
        self._count += 1

    def __delitem__(self, request: InferRequest) -> None:
        if self.pop(request, None) is None:
            raise KeyError(request)

    def pop(self, request: InferRequest, default: None) -> int | None:
        """Take `request` out and return its ticket, None when it isn't here. What was not served costs its client nothing."""
        client = self._clients.get(request.client)
        ticket = default if client is None else client.requests.pop(request, default)
        if client is None or ticket is None:
            return None
        self._count -= 1
        client.items -= request.batch_size
        if not client.requests:
            del self._order[bisect_left(self._order, client.place())]
            self._end(client)
        return ticket

    def popitem(self, *, last: bool) -> tuple[InferRequest, int]:
        """Take out the next request and return it with its ticket. `last` must be False; there must be one."""
        assert not last
        start, _, client = self._order.pop(0)
        request, ticket = client.requests.popitem(last=False)
        size = request.batch_size
        self._count -= 1
        client.items -= size
        self._now = max(self._now + size / self._weight, start)
        client.start = start + size / client.weight
        if client.requests:
            self._number = client.number = self._number + 1
            insort(self._order, client.place())
        else:
            self._end(client)
        return request, ticket

    def items_ahead(self, request: InferRequest) -> float:
        """Return about how many items are served before `request`, which isn't here yet: its client's own, and meanwhile what
        the others get.
        """
        client = self._clients.get(request.client)
        return 0.0 if client is None else client.items * self._weight / client.weight

    def _begin(self, name: str) -> _Client:
        weight = self._weights.get(name, 1)
        finish = self._ended.pop(name, None)
        if finish is None:
            self._weight += weight
        self._number += 1
        client = self._clients[name] = _Client(name, weight, max(self._now, finish or 0.0), self._number)
        insort(self._order, client.place())
        return client

    def _end(self, client: _Client) -> None:
        """The client, which is in the order no longer, has nothing queued; remember what it had more than its share."""
        del self._clients[client.name]
        if not self._count:
            self._ended.clear()
            self._finishes.clear()
            self._weight, self._now = 0, 0.0
            return
        self._ended[client.name] = client.start
        heappush(self._finishes, (client.start, client.name))
        if len(self._finishes) > _SMALL_HEAP + 2 * len(self._ended):
            self._finishes = [(finish, name) for name, finish in self._ended.items()]
            heapify(self._finishes)
        while self._finishes and (self._finishes[0][0] <= self._now or len(self._ended) > _MOST_REMEMBERED):
            finish, name = heappop(self._finishes)
            if self._ended.get(name) == finish:
                del self._ended[name]
                self._weight -= self._weights.get(name, 1)

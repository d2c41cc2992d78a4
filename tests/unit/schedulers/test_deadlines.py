"""The heap of deadlines: order, and what it keeps of requests that have left."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from fake_execution import Probe

from naiad.request.request import InferRequest
from naiad.schedulers.deadlines import Deadlines


def test_equal_deadlines_pass_in_the_order_of_their_arrival() -> None:
    deadlines, requests = Deadlines(), [Probe().request for _ in range(3)]
    for request in requests:
        deadlines.add(request, 5)
    assert deadlines.pop_passed(4) == []
    assert requests == deadlines.pop_passed(5)
    assert len(deadlines) == 0


def test_a_struck_out_deadline_neither_passes_nor_counts_as_the_next() -> None:
    deadlines, late = Deadlines(), Probe().request
    ticket = deadlines.add(Probe().request, 1)
    deadlines.add(late, 2)
    deadlines.discard(ticket)
    assert deadlines.next_ns() == 2
    assert [late] == deadlines.pop_passed(10)
    assert deadlines.next_ns() is None


def test_striking_out_twice_is_an_error() -> None:
    deadlines = Deadlines()
    ticket = deadlines.add(Probe().request, 1)
    deadlines.discard(ticket)
    with pytest.raises(KeyError):
        deadlines.discard(ticket)


def test_dead_entries_stay_few_over_100_000_requests_that_left_in_time() -> None:
    deadlines, request, most = Deadlines(), Probe().request, 0
    deadlines.add(request, 0)
    for i in range(100_000):
        deadlines.discard(deadlines.add(request, 10**9 + i))
        most = max(most, deadlines.entry_count())
    assert most <= 100


def test_a_struck_out_deadline_does_not_keep_the_tensors_of_its_request_in_memory() -> None:
    deadlines, tensor = Deadlines(), np.zeros(3, np.float32)
    watch = weakref.ref(tensor)
    ticket = deadlines.add(InferRequest({"X": tensor}, (), 1, Probe().request.responder, 0), 10**9)
    del tensor
    assert watch() is not None
    deadlines.discard(ticket)
    assert watch() is None

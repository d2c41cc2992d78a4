"""Answers in the order of their requests."""

from __future__ import annotations

from itertools import pairwise

from fake_execution import Probe
from hypothesis import given
from hypothesis import strategies as st

from naiad.errors import cancelled, internal
from naiad.request.response import InferResponse
from naiad.schedulers.ordering import ResponseOrder


def track(count: int) -> list[Probe]:
    order, probes = ResponseOrder(), [Probe() for _ in range(count)]
    for probe in probes:
        order.track(probe.request)
    return probes


def test_an_answer_waits_for_those_of_earlier_requests() -> None:
    first, second, third = track(3)
    third.request.responder.send(None)
    second.request.responder.fail(internal("broken"))
    assert (second.answers, third.answers) == ([], [])
    first.request.responder.send(None)
    assert [probe.end_count for probe in (first, second, third)] == [1, 1, 1]
    assert second.error is not None
    assert second.error.message == "broken"


def test_a_cancelled_request_answers_in_its_place() -> None:
    first, second = track(2)
    second.request.cancel()
    assert second.request.responder.has_ended
    assert second.end_count == 0
    first.request.responder.fail(cancelled())
    assert (first.end_count, second.end_count) == (1, 1)


def test_the_oldest_request_streams_and_the_next_one_catches_up() -> None:
    first, second = track(2)
    answers = [InferResponse("m", "1", str(i), []) for i in range(4)]
    first.request.responder.send(answers[0], is_final=False)
    second.request.responder.send(answers[1], is_final=False)
    assert (first.answers, second.answers) == ([answers[0]], [])
    first.request.responder.send(None)
    assert second.answers == [answers[1]]
    second.request.responder.send(answers[2], is_final=True)
    assert second.answers == [answers[1], answers[2]]


def test_a_request_dropped_without_an_answer_does_not_hold_the_others() -> None:
    order, first, second = ResponseOrder(), Probe(), Probe()
    order.track(first.request)
    order.track(second.request)
    second.request.responder.send(None)
    del first.request
    assert (first.end_count, second.end_count) == (1, 1)


def test_an_answer_caused_by_an_earlier_one_comes_after_what_was_held_before_it() -> None:
    first, second, third = track(3)
    heard: list[str] = []
    second.on_end = lambda: heard.append("second")
    third.on_end = lambda: heard.append("third")

    def end_third_too() -> None:
        third.request.responder.send(None)
        heard.append("first")

    first.on_end = end_third_too
    second.request.responder.send(None)
    first.request.responder.send(None)
    assert heard == ["first", "second", "third"]


def test_a_chain_of_answers_that_cause_the_next_needs_no_recursion() -> None:
    probes = track(5000)
    for probe, follower in pairwise(probes):
        probe.on_end = lambda follower=follower: follower.request.responder.send(None)
    probes[0].request.responder.send(None)
    assert {1} == {probe.end_count for probe in probes}


def test_a_stream_whose_answers_cause_the_next_needs_no_recursion() -> None:
    order, stream = ResponseOrder(), Stream(5000)
    order.track(stream.request)
    stream.request.responder.send(None, is_final=False)
    assert len(stream.answers) == 5000


class Stream(Probe):
    """Asks its model for the next response whenever one arrives."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.left = length

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        super().send(response, is_final)
        self.left -= 1
        if self.left:
            self.request.responder.send(None, is_final=self.left == 1)


@given(st.permutations(range(8)))
def test_whatever_the_order_of_the_ends_the_answers_keep_that_of_the_requests(ends: list[int]) -> None:
    probes, heard = track(8), []
    for i, probe in enumerate(probes):
        probe.on_end = lambda i=i: heard.append(i)
    for done, i in enumerate(ends, start=1):
        probes[i].request.responder.send(None)
        ended = set(ends[:done])
        assert heard == list(range(next(k for k in range(9) if k not in ended)))


def test_what_waits_for_its_turn_goes_at_the_pace_of_the_oldest_requests_client() -> None:
    first, second = track(2)
    calls: list[str] = []
    assert second.request.responder.when_writable(lambda: calls.append("second"))
    first.is_slow = True
    assert not second.request.responder.when_writable(lambda: calls.append("second"))
    assert (len(first.writable_callbacks), second.writable_callbacks) == (1, [])
    first.writable_callbacks[0]()
    assert calls == ["second"]
    first.request.responder.send(None)
    second.is_slow = True
    assert not second.request.responder.when_writable(lambda: None)
    assert len(second.writable_callbacks) == 1


def test_a_request_that_has_ended_waits_for_nobody() -> None:
    first, second = track(2)
    first.is_slow = second.is_slow = True
    second.request.responder.send(None)
    assert second.request.responder.when_writable(lambda: None)
    first.request.cancel()
    assert first.request.responder.when_writable(lambda: None)
    assert first.writable_callbacks == []

"""Responses that come one by one reach their client in its pace; each is counted for what became of it."""

from __future__ import annotations

import pytest
from event_loops import run_on_asyncio
from fake_worker import Bench, xy_plan

from naiad.errors import Code
from naiad.worker.frames import FLAG_FINAL, Kind


def on_stream(test, *, is_decoupled: bool = True) -> None:
    """Run `test(bench, probe, number)` with one request whose `execute` has returned."""

    async def run() -> None:
        bench = Bench(xy_plan(is_decoupled=is_decoupled))
        probe = bench.probe()
        bench.submit(probe)
        (execute,) = bench.process.take(Kind.EXECUTE)
        bench.process.returned(execute)
        await test(bench, probe, execute.id)
        await bench.instance.close()

    run_on_asyncio(run())


def counts(bench, index: int) -> dict[str, int]:
    """Return the counts other than 0 of the responses with that index."""
    totals = bench.statistics.per_response[index].to_json()
    return {name: totals[name]["count"] for name in ("success", "fail", "empty_response", "cancel") if totals[name]["count"]}


def test_responses_come_in_order_and_the_end_may_come_alone():
    async def check(bench, probe, number):
        for value in (1, 2):
            bench.process.respond(number, value)
        bench.process.respond(number, is_final=True)
        assert [answer and float(answer.outputs[0].array.flat[0]) for answer in probe.answers] == [1.0, 2.0, None]
        assert (probe.end_count, bench.instance.open_count) == (1, 0)
        assert [counts(bench, index) for index in range(3)] == [{"success": 1}, {"success": 1}, {"empty_response": 1}]
        assert bench.statistics.per_response[2].empty_ns > 0

    on_stream(check)


def test_what_comes_for_a_cancelled_request_is_counted_as_such():
    async def check(bench, probe, number):
        bench.process.respond(number, 1)
        probe.request.cancel()
        assert [frame.id for frame in bench.process.take(Kind.CANCEL)] == [number]
        bench.process.respond(number, 2)
        bench.process.respond(number, is_final=True)
        assert probe.end_count == 1
        assert [counts(bench, index) for index in range(3)] == [{"success": 1}, {"cancel": 1}, {"cancel": 1}]

    on_stream(check)


def test_an_error_ends_the_request_for_its_client_whatever_follows():
    async def check(bench, probe, number):
        bench.process.push(Kind.RESPONSE, number, {"error": ["INVALID_ARGUMENT", "no"]})
        bench.process.respond(number, 2)
        bench.process.respond(number, is_final=True)
        assert (probe.end_count, probe.error.code) == (1, Code.INVALID_ARGUMENT)
        assert counts(bench, 0) == {"fail": 1}

    on_stream(check)


def test_credit_is_given_in_parts_while_the_client_keeps_up():
    async def check(bench, probe, number):
        for _ in range(9):
            bench.process.respond(number, 1)
        assert [frame.value for frame in bench.process.take(Kind.CREDIT)] == [4, 4]

    on_stream(check)


def test_a_client_that_does_not_read_holds_the_credit_until_it_does():
    async def check(bench, probe, number):
        probe.is_slow = True
        for _ in range(16):
            bench.process.respond(number, 1)
        assert bench.process.take(Kind.CREDIT) == []
        for callback in probe.writable_callbacks:
            callback()
        assert sum(frame.value for frame in bench.process.take(Kind.CREDIT)) == 16

    on_stream(check)


def test_a_slow_client_that_is_gone_holds_no_credit():
    async def check(bench, probe, number):
        probe.is_slow = True
        probe.request.cancel()
        for _ in range(8):
            bench.process.respond(number, 1)
        assert sum(frame.value for frame in bench.process.take(Kind.CREDIT)) == 8

    on_stream(check)


def test_a_response_to_nobody_is_dropped():
    async def check(bench, probe, number):
        bench.process.respond(number + 7, 1)
        bench.process.respond(number, is_final=True)
        bench.process.respond(number, 1)
        assert (bench.process.broken, probe.end_count) == ([], 1)

    on_stream(check)


def test_a_model_that_is_not_decoupled_must_respond_once():
    async def check(bench, probe, number):
        bench.process.respond(number, is_final=True)
        assert probe.error.code is Code.INTERNAL
        assert "without a response" in probe.error.message

    on_stream(check, is_decoupled=False)


@pytest.mark.parametrize(
    ("message", "flags", "is_decoupled"),
    [
        (b"{", 0, True),
        ([1], FLAG_FINAL, True),
        ({"outputs": [["Y", "FP32", [1, 2], 0, 8]]}, FLAG_FINAL, True),
        (b"", 0, True),
        ({"error": ["INTERNAL", "x"]}, 0, False),
    ],
    ids=["no JSON", "no object", "no block", "nothing at all", "more than one"],
)
def test_a_response_that_lies_breaks_the_worker_and_its_request_ends_with_it(message, flags, is_decoupled):
    async def check(bench, probe, number):
        bench.process.push(Kind.RESPONSE, number, message, flags=flags)
        assert (len(bench.process.broken), probe.end_count) == (1, 0)
        bench.process.die("protocol")
        assert probe.end_count == 1

    on_stream(check, is_decoupled=is_decoupled)

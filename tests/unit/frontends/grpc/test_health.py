"""The health service: what has a status, who is told of a change and when, and that nobody is kept."""

from __future__ import annotations

import pytest
from fake_call import FakeCall
from fake_loop import FakeLoop
from fake_service import FakeService
from grpc_pair import GrpcPair, framed

from naiad.errors import Code, InferenceServerError
from naiad.frontends.grpc.call import RpcMethod
from naiad.frontends.grpc.rpc.health import NOT_SERVING, SERVICE_UNKNOWN, SERVING, HealthBoard, WatchRpc
from naiad.proto import message_class

INFERENCE = "inference.GRPCInferenceService"


class Board:
    """A board with its service, its loop and its watchers' transports."""

    def __init__(self) -> None:
        self.service = FakeService()
        self.loop = FakeLoop()
        self.board = HealthBoard(self.service, (INFERENCE,), self.loop.call_soon)

    def check(self, name: str) -> int:
        return self.board.check(self.service, request(name)).status

    def begin(self, name: str) -> tuple[WatchRpc, FakeCall]:
        call = FakeCall()
        watch = self.board.watch(call)
        watch.on_message(request(name).SerializeToString())
        watch.on_half_close()
        return watch, call

    def change(self, **serving: bool) -> None:
        """Change models, or with `ready` the server, and let all hear of it."""
        self.service.ready = serving.pop("ready", self.service.ready)
        self.service.serving.update(serving)
        self.service.tell_readiness()
        self.loop.turn()


def connected(board: Board, count: int) -> tuple[GrpcPair, list[int]]:
    """Return a connection with so many calls of Watch, and their streams."""
    pair = GrpcPair()
    pair.site._methods[b"/Watch"] = RpcMethod(b"/Watch", "health", board.board.watch, 1, ends_at_drain=True)
    return pair, [pair.call(b"/Watch", framed(request("").SerializeToString())) for _ in range(count)]


def request(name: str):
    return message_class("grpc.health.v1.HealthCheckRequest")(service=name)


def told(call: FakeCall) -> list[int]:
    return [message_class("grpc.health.v1.HealthCheckResponse").FromString(message).status for message in call.sent]


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.mark.parametrize("name", ["", INFERENCE])
def test_check_of_the_server_is_its_readiness(board, name) -> None:
    assert board.check(name) == SERVING
    board.change(ready=False)
    assert board.check(name) == NOT_SERVING


def test_check_of_a_model_is_the_models_and_of_what_isnt_known_the_servers(board) -> None:
    assert (board.check("echo"), board.check("broken"), board.check("liveness")) == (SERVING, NOT_SERVING, SERVING)
    board.change(ready=False)
    assert (board.check("echo"), board.check("broken"), board.check("liveness")) == (SERVING, NOT_SERVING, NOT_SERVING)


def test_check_and_watch_are_unavailable_while_the_server_drains(board) -> None:
    board.service.draining = True
    for ask in (lambda: board.check(""), lambda: board.board.watch(FakeCall())):
        with pytest.raises(InferenceServerError, match="shutting down") as raised:
            ask()
        assert raised.value.code is Code.UNAVAILABLE
    assert board.board.watch_count == 0


def test_a_watcher_is_told_at_once_and_then_each_change_once(board) -> None:
    _, call = board.begin("")
    assert told(call) == [SERVING]
    board.change()
    board.change(echo=False)
    assert told(call) == [SERVING]
    board.change(ready=False)
    board.change(ready=True)
    assert told(call) == [SERVING, NOT_SERVING, SERVING]
    assert call.end == "open"


def test_an_unknown_service_is_a_message_and_may_appear_and_go(board) -> None:
    _, call = board.begin("later")
    board.change(later=False)
    board.change(later=True)
    del board.service.serving["later"]
    board.change()
    assert told(call) == [SERVICE_UNKNOWN, NOT_SERVING, SERVING, SERVICE_UNKNOWN]


def test_changes_within_a_turn_are_told_as_one(board) -> None:
    _, call = board.begin("")
    for ready in (False, True, False):
        board.service.ready = ready
        board.service.tell_readiness()
    board.loop.turn()
    assert told(call) == [SERVING, NOT_SERVING]


def test_a_watcher_that_doesnt_read_gets_only_the_latest(board) -> None:
    _, call = board.begin("")
    call.is_reading = False
    for ready in (False, True, False):
        board.change(ready=ready)
    assert told(call) == [SERVING]
    assert len(call.waiting) == 1
    call.read_again()
    assert told(call) == [SERVING, NOT_SERVING]
    call.is_reading = False
    board.change(ready=True)
    board.change(ready=False)
    call.read_again()
    assert told(call) == [SERVING, NOT_SERVING]


def test_a_watcher_is_forgotten_when_its_call_is_over(board) -> None:
    watch, call = board.begin("")
    other, heard = board.begin("")
    call.is_reading = False
    board.change(ready=False)
    watch.on_cancel(None)
    call.read_again()
    board.change(ready=True)
    assert told(call) == [SERVING]
    assert told(heard) == [SERVING, NOT_SERVING, SERVING]
    other.on_cancel(None)
    assert board.board.watch_count == 0


def test_a_thousand_watchers_are_told_in_small_turns_and_cost_nothing_between(board) -> None:
    calls = [board.begin("")[1] for _ in range(1000)]
    board.loop.turn()
    asked = []
    board.service.is_ready = lambda: asked.append(1) or False  # type: ignore[method-assign]
    assert (board.loop.open_timers, board.loop.waiting_count, asked) == (0, 0, [])
    board.service.tell_readiness()
    longest = 0
    while board.loop.waiting_count:
        before = sum(len(call.sent) for call in calls)
        board.loop.turn_once()
        longest = max(longest, sum(len(call.sent) for call in calls) - before)
    assert {tuple(told(call)) for call in calls} == {(SERVING, NOT_SERVING)}
    assert 0 < longest <= 32
    # One question a turn, however many are told.
    assert len(asked) <= 1000 / 32 + 1


def test_a_change_while_others_are_told_reaches_all(board) -> None:
    calls = [board.begin("")[1] for _ in range(100)]
    board.service.ready = False
    board.service.tell_readiness()
    board.loop.turn_once()
    board.change(ready=True)
    assert {tuple(told(call))[-1] for call in calls} == {SERVING}
    assert {len(call.sent) for call in calls} == {1, 3}


def test_no_watcher_is_left_after_a_reset_or_the_loss_of_its_connection(board) -> None:
    pair, streams = connected(board, 20)
    assert board.board.watch_count == 20
    for stream in streams[:5]:
        pair.client.reset_stream(stream, 8)
    pair.pump()
    assert board.board.watch_count == 15
    board.change(ready=False)
    pair.pump()
    assert [len(pair.body(stream)) for stream in streams] == [7] * 5 + [14] * 15
    pair.connection.connection_lost(None)
    assert (board.board.watch_count, pair.connection.streams, pair.connection.waiting) == (0, {}, set())


def test_a_watchers_deadline_ends_it(board) -> None:
    pair, _ = connected(board, 0)
    stream = pair.call(b"/Watch", framed(b""), grpc_timeout=b"5S")
    pair.loop.advance(6)
    pair.pump()
    assert (pair.status(stream), board.board.watch_count) == (4, 0)


def test_the_drain_tells_not_serving_and_ends_every_watch(board) -> None:
    calls = [board.begin(name)[1] for name in ("", "echo", INFERENCE)]
    silent = FakeCall()
    board.board.watch(silent)
    board.service.draining = True
    board.change(ready=False, echo=False)
    assert [told(call) for call in calls] == [[SERVING, NOT_SERVING]] * 3
    assert [call.end.code for call in (*calls, silent)] == [Code.UNAVAILABLE] * 4
    assert board.board.watch_count == 0


def test_a_watch_takes_exactly_one_request_message(board) -> None:
    watch, call = board.begin("")
    with pytest.raises(InferenceServerError, match="one request message, a second one came") as raised:
        watch.on_message(b"")
    assert raised.value.code is Code.INTERNAL
    with pytest.raises(InferenceServerError, match="one request message, none came") as raised:
        board.board.watch(FakeCall()).on_half_close()
    assert raised.value.code is Code.INTERNAL
    assert told(call) == [SERVING]


def test_a_watch_of_garbage_or_of_an_endless_name_is_refused(board) -> None:
    with pytest.raises(InferenceServerError, match=r"is no grpc\.health\.v1\.HealthCheckRequest") as raised:
        board.board.watch(FakeCall()).on_message(b"\x0a\xff")
    assert raised.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(InferenceServerError, match="'service' has 1025 characters, at most 1024 are allowed") as raised:
        board.begin("x" * 1025)
    assert raised.value.code is Code.INVALID_ARGUMENT

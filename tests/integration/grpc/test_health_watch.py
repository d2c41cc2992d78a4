"""The health service on a real server: watchers hear of loading models, dead workers and the stop, and don't hold it up."""

from __future__ import annotations

import os
import signal
import threading
import time

import grpc
import http2_frames as h2
import numpy as np
import pytest
import tritonclient.grpc as triton
from fragile_models import Fragile, write_fragile
from model_folders import identity
from scripted_models import ENVIRONMENT, ScriptedModel
from server_process import ServerProcess
from waiting import wait_until

from naiad.proto import message_class

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
REQUEST, RESPONSE = (message_class(f"grpc.health.v1.HealthCheck{kind}") for kind in ("Request", "Response"))
CODEC = {"request_serializer": REQUEST.SerializeToString, "response_deserializer": RESPONSE.FromString}
SERVICE = "/grpc.health.v1.Health"


class Watcher:
    """One call of Watch. `next` waits for its next message, `end` for its end."""

    def __init__(self, channel: grpc.Channel, name: str, metadata=()) -> None:
        watch = channel.unary_stream(f"{SERVICE}/Watch", **CODEC)
        self.call = watch(REQUEST(service=name), timeout=15, metadata=metadata)

    def next(self) -> int:
        return next(self.call).status

    def end(self) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError) as raised:
            next(self.call)
        return raised.value.code()


def check(channel: grpc.Channel, name: str = "") -> int:
    return channel.unary_unary(f"{SERVICE}/Check", **CODEC)(REQUEST(service=name), timeout=10).status


@pytest.fixture
def held(tmp_path):
    """A model that waits where the test tells it to, beside one that doesn't."""
    identity(tmp_path / "models", "echo")
    model = ScriptedModel(tmp_path / "models", "held")
    yield model
    model.release()


def test_watchers_hear_how_the_server_loads_and_stops(tmp_path, held) -> None:
    held.hold("load")
    server = ServerProcess(tmp_path / "models", environment=ENVIRONMENT).wait_listening()
    try:
        with grpc.insecure_channel(server.grpc) as channel:
            names = ["", "inference.GRPCInferenceService", "held", "nobody"]
            watchers = [Watcher(channel, name) for name in names]
            assert [each.next() for each in watchers] == [NOT_SERVING, NOT_SERVING, NOT_SERVING, SERVICE_UNKNOWN]
            assert [check(channel, name) for name in ("", "held", "nobody")] == [NOT_SERVING] * 3
            wait_until(lambda: check(channel, "echo") == SERVING, what="the other model")
            held.release("load")
            assert [each.next() for each in watchers[:3]] == [SERVING] * 3
            assert [check(channel, name) for name in names] == [SERVING] * 4
            stopped = threading.Thread(target=server.stop)
            stopped.start()
            assert [each.next() for each in watchers[:3]] == [NOT_SERVING] * 3
            assert [each.end() for each in watchers] == [grpc.StatusCode.UNAVAILABLE] * 4
            stopped.join(10)
    finally:
        held.release()
        assert server.stop() == 0, server.log()
    assert "Traceback" not in server.log()


def test_a_thousand_watchers_are_told_of_the_stop_and_dont_delay_it(tmp_path, serve) -> None:
    server = serve(identity(tmp_path, "echo"))
    with grpc.insecure_channel(server.grpc) as channel:
        watchers = [Watcher(channel, "") for _ in range(1000)]
        assert {each.next() for each in watchers} == {SERVING}
        for each in watchers[:100]:
            each.call.cancel()
        server.process.send_signal(signal.SIGTERM)
        assert {each.next() for each in watchers[100:]} == {NOT_SERVING}
        assert {each.end() for each in watchers[100:]} == {grpc.StatusCode.UNAVAILABLE}
        assert server.wait(5) == 0


@pytest.mark.parametrize("first", [((h2.INITIAL_WINDOW_SIZE, 0),), ()])
def test_a_watcher_that_doesnt_read_doesnt_hold_up_the_stop(tmp_path, serve, first) -> None:
    server = serve(identity(tmp_path, "echo"), "--exit-timeout-secs=10")
    host, port = server.grpc.rsplit(":", 1)
    head = h2.headers(1, h2.call_fields(f"{SERVICE}/Watch".encode()))
    with h2.FrameConnection((host, int(port)), *first) as connection:
        # One with a window of nothing, or one that opens the call and never says what it wants to watch.
        connection.send(head + (h2.data(1, h2.message(), h2.END_STREAM) if first else b""))
        connection.send(h2.ping())
        connection.read_until(lambda each: each.kind == h2.PING and each.flags == h2.ACK)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5


def test_check_and_new_watches_are_unavailable_while_the_server_drains(tmp_path, held, serve) -> None:
    server = serve(tmp_path / "models", environment=ENVIRONMENT)
    held.hold(7)
    item = triton.InferInput("X", [1, 1], "FP32").set_data_from_numpy(np.array([[7]], np.float32))
    answers: list = []
    own = [("grpc.use_local_subchannel_pool", 1)]
    with triton.InferenceServerClient(server.grpc) as client, grpc.insecure_channel(server.grpc, own) as channel:
        client.async_infer("held", [item], callback=lambda result, error: answers.append((result, error)))
        wait_until(lambda: held.ran(7), what="the request to run")
        watcher = Watcher(channel, "")
        assert watcher.next() == SERVING
        server.process.send_signal(signal.SIGTERM)
        assert (watcher.next(), watcher.end()) == (NOT_SERVING, grpc.StatusCode.UNAVAILABLE)
        with grpc.insecure_channel(server.grpc, own) as late:
            for ask in (check, lambda channel: Watcher(channel, "").next()):
                with pytest.raises(grpc.RpcError) as raised:
                    ask(late)
                assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
                assert "shutting down" in raised.value.details()
        held.release(7)
        wait_until(lambda: answers, what="the answer to what was in flight")
    assert answers[0][1] is None
    assert server.wait() == 0


def test_watchers_hear_of_a_worker_that_dies_and_comes_back(tmp_path, serve) -> None:
    fragile = Fragile(serve(identity(tmp_path, "echo"), write_fragile(tmp_path)), tmp_path / "fragile")
    server = fragile.server
    with grpc.insecure_channel(server.grpc) as channel:
        watchers = [Watcher(channel, name) for name in ("", "fragile")]
        other = Watcher(channel, "echo")
        assert [each.next() for each in (*watchers, other)] == [SERVING] * 3
        os.kill(fragile.worker(), signal.SIGKILL)
        assert [each.next() for each in watchers] == [NOT_SERVING] * 2
        assert [each.next() for each in watchers] == [SERVING] * 2
        assert check(channel, "fragile") == SERVING
        server.process.send_signal(signal.SIGTERM)
        # In between nothing was to be told of the model that lived.
        assert other.next() == NOT_SERVING


def test_watch_is_restricted_with_health(tmp_path, serve) -> None:
    server = serve(identity(tmp_path, "echo"), "--grpc-restricted-protocol=health:key=secret")
    with grpc.insecure_channel(server.grpc) as channel:
        assert Watcher(channel, "").end() is grpc.StatusCode.UNAVAILABLE
        assert Watcher(channel, "", [("triton-grpc-protocol-key", "secret")]).next() == SERVING

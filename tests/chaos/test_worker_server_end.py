"""A server that ends answers what its workers run, and none of them outlives it."""

from __future__ import annotations

import signal

import pytest
from fragile_models import Fragile, error, many, outputs, workers, write_fragile, write_fragile_stream
from process_facts import is_alive
from python_models import write_echo
from waiting import wait_until


@pytest.fixture
def models(tmp_path, serve):
    folders = [write_fragile(tmp_path, "fragile"), write_fragile(tmp_path, "caller"), write_fragile_stream(tmp_path)]
    write_echo(tmp_path)
    server = serve(tmp_path, "--worker-stop-timeout-secs=5", "--exit-timeout-secs=10")
    return {folder.name: Fragile(server, folder) for folder in folders}


def stopping(server) -> bool:
    return any("stopping: waiting" in line for line in server.errors)


def test_what_runs_when_the_server_stops_is_answered(models):
    fragile, stream, caller = models["fragile"], models["stream"], models["caller"]
    server = fragile.server
    pids = [pid for pid, _ in workers(server)]
    with many(4) as pool:
        calling = pool.submit(caller.ask, 1, do="call", model="fragile", its_do="hold", its_tag="n")
        fragile.wait_note("n.begun")
        waiting = pool.submit(fragile.ask, 2)
        streaming = pool.submit(stream.stream, 3, count=3, hold="s")
        stream.wait_note("s.begun")
        wait_until(lambda: server.metric("nv_inference_pending_request_count", model="fragile") == 1)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: stopping(server))
        stream.put("s.go")
        fragile.put("n.go")
        assert outputs(calling.result(10)) == [2]
        assert outputs(waiting.result(10)) == [4]
        assert [event["Y"] for event in streaming.result(10)] == [3, 4, 5]
    assert server.wait() == 0
    assert not any(is_alive(pid) for pid in pids)
    assert fragile.note("finalizing") is not None


def test_a_worker_that_dies_while_the_server_stops_holds_nothing_up(models):
    fragile = models["fragile"]
    server = fragile.server
    with many(2) as pool:
        held = pool.submit(fragile.ask, 1, do="hold_and_die", tag="d")
        fragile.wait_note("d.begun")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: stopping(server))
        fragile.put("d.go")
        assert "was killed by SIGKILL" in error(held.result(10))
    assert server.wait() == 0


def test_what_runs_for_longer_than_the_exit_timeout_is_ended(tmp_path, serve):
    folders = [write_fragile(tmp_path, "fragile"), write_fragile_stream(tmp_path)]
    server = serve(tmp_path, "--exit-timeout-secs=1", "--worker-stop-timeout-secs=1")
    fragile, stream = (Fragile(server, folder) for folder in folders)
    pids = [pid for pid, _ in workers(server)]
    with many(3) as pool:
        hanging = pool.submit(fragile.ask, 1, do="hang")
        wait_until(lambda: server.metric("naiad_running_requests", model="fragile") == 1)
        queued = pool.submit(fragile.ask, 1)
        streaming = pool.submit(stream.stream, 3, count=3, hold="never")
        stream.wait_note("never.begun")
        wait_until(lambda: server.metric("nv_inference_pending_request_count", model="fragile") == 1)
        assert server.stop() == 1
        assert error(hanging.result(10))
        assert error(queued.result(10))
        assert "error" in streaming.result(10)[-1]
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize("way", ["hold", "spin"])
def test_no_worker_outlives_a_server_that_is_killed(models, way):
    fragile = models["fragile"]
    server = fragile.server
    pids = [pid for pid, _ in workers(server)]
    assert len(pids) == 4
    with many(1) as pool:
        asked = pool.submit(fragile.ask, 1, do=way, tag="k")
        wait_until(lambda: server.metric("naiad_running_requests", model="fragile") == 1)
        server.process.kill()
        server.wait()
        assert isinstance(asked.exception(10), Exception)
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid), what=f"the end of {pid}")

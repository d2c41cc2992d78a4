"""The response cache in a real Redis server, which may go and come back."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from model_folders import identity
from programs import need_program
from waiting import wait_until

pytest.importorskip("redis")

CACHED = "response_cache { enable: true }"


class Redis:
    """A redis-server on a port of its own. It can be stopped and started again, empty."""

    def __init__(self, folder: Path) -> None:
        self._program = need_program("redis-server")
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            [self._program, *options, "--requirepass", "s3cret"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers, what="redis-server to listen")

    def _answers(self) -> bool:
        with socket.socket() as asked:
            return asked.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def redis(tmp_path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    yield server
    server.stop()


def start(serve, repository: Path, port: int):
    identity(repository, more=CACHED)
    flags = [f"--cache-config=redis,{text}" for text in ("host=127.0.0.1", f"port={port}")]
    return serve(repository, *flags, environment={"TRITONCACHE_REDIS_PASSWORD": "s3cret"})


def ask(server, value: float) -> None:
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [value]}]}
    response = server.infer("echo", body)
    assert (response.status_code, response.json()["outputs"][0]["data"]) == (200, [value])


def test_answers_are_kept_in_redis(tmp_path, serve, redis):
    server = start(serve, tmp_path / "models", redis.port)
    for value in (1, 2):
        before = server.metric("nv_cache_num_hits_per_model", model="echo")

        def is_hit(value: float = value, before: float = before) -> bool:
            ask(server, value)
            return server.metric("nv_cache_num_hits_per_model", model="echo") > before

        # Storing goes on after the answer.
        wait_until(is_hit, what="an answer from redis")
    assert server.metric("nv_cache_num_hits") == server.metric("nv_cache_num_hits_per_model", model="echo") == 2


def test_without_redis_every_request_runs_and_the_log_says_so_once(tmp_path, serve, redis):
    server = start(serve, tmp_path / "models", redis.port)
    ask(server, 1)
    redis.stop()
    for value in (1, 1, 2, 2):
        ask(server, value)
    assert server.metric("nv_inference_exec_count", model="echo") >= 4
    assert server.log().count("can't be used, every request runs until it can") == 1
    redis.start()
    wait_until(lambda: "can be used again" in server.log(), what="redis to be found again")

    def is_hit() -> bool:
        ask(server, 3)
        return server.metric("nv_cache_num_hits_per_model", model="echo") > 0

    wait_until(is_hit, what="an answer from redis")
    assert "s3cret" not in server.log()
    assert server.stop() == 0
    assert "Traceback" not in server.log()


SHARED = CACHED + ' parameters { key: "naiad_cache_shared" value { string_value: "true" } }'


def test_equal_models_of_two_servers_share_answers_and_a_changed_one_does_not(tmp_path, serve, redis):
    flags = [f"--cache-config=redis,{text}" for text in ("host=127.0.0.1", f"port={redis.port}")]
    explicit = ("--model-control-mode=explicit", "--load-model=echo")
    repositories = [tmp_path / name for name in ("one", "two")]
    for repository in repositories:
        folder = identity(repository, more=SHARED)
        (folder / "1" / "weights").write_bytes(b"w")
    first, second = (
        serve(repository, *flags, *explicit, environment={"TRITONCACHE_REDIS_PASSWORD": "s3cret"})
        for repository in repositories
    )

    def hits(server) -> float:
        return server.metric("nv_cache_num_hits_per_model", model="echo")

    def is_kept() -> bool:
        ask(first, 1)
        return hits(first) > 0

    wait_until(is_kept, what="an answer in redis")
    ask(second, 1)
    assert (hits(second), second.metric("nv_inference_exec_count", model="echo")) == (1, 0)
    (repositories[1] / "echo" / "1" / "weights").write_bytes(b"W")
    requests.post(f"{second.url}/v2/repository/models/echo/load", timeout=10).raise_for_status()
    ask(second, 1)
    assert second.metric("nv_inference_exec_count", model="echo") == 1
    (repositories[1] / "echo" / "1" / "weights").write_bytes(b"w")
    requests.post(f"{second.url}/v2/repository/models/echo/load", timeout=10).raise_for_status()
    before = second.metric("nv_inference_exec_count", model="echo")
    ask(second, 1)
    assert second.metric("nv_inference_exec_count", model="echo") == before

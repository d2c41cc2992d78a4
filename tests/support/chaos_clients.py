"""Clients that do well, badly and not at all, at random; each action is one connection and checks its own answers."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from raw_http import Connection, infer, post

Action = Callable[[Connection, random.Random], None]


def good_json(connection: Connection, chance: random.Random) -> None:
    value = chance.randrange(1000)
    for model in chance.choices(["echo", "slow"], k=3):
        status, _, body = connection.send(infer(model, [value])).response()
        assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [value]), body


def good_binary(connection: Connection, chance: random.Random) -> None:
    values = np.arange(chance.choice([1, 16, 300_000]), dtype=np.float32).tobytes()
    tensor = {"name": "X", "shape": [1, len(values) // 4], "datatype": "FP32", "parameters": {"binary_data_size": len(values)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    request = post("/v2/models/echo/infer", head + values, f"Inference-Header-Content-Length: {len(head)}")
    status, headers, body = connection.send(request).response()
    assert (status, body[int(headers["inference-header-content-length"]) :] == values) == (200, True)


def large_json(connection: Connection, chance: random.Random) -> None:
    count = 400_000
    status, _, body = connection.send(infer("echo", [1] * count)).response()
    assert (status, json.loads(body)["outputs"][0]["shape"]) == (200, [1, count])


def pipelined(connection: Connection, chance: random.Random) -> None:
    good, bad = infer("slow", [1]), infer("slow", [1], datatype="INT8")
    connection.send(good + bad + b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n" + good)
    assert [connection.response()[0] for _ in range(4)] == [200, 400, 200, 200]


def bad_requests(connection: Connection, chance: random.Random) -> None:
    requests = [
        (post("/v2/models/echo/infer", b"{"), 400),
        (infer("absent", [1]), 404),
        (infer("echo", [1], [2]), 400),
        (infer("failing", [13]), 500),
        (post("/v2/models/echo/generate", b"[]"), 400),
    ]
    for request, expected in chance.sample(requests, 3):
        assert connection.send(request).response()[0] == expected


def malformed_http(connection: Connection, chance: random.Random) -> None:
    text = chance.choice([b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
    assert connection.send(text).response()[0] == 400
    assert connection.is_at_end()


def half_sent(connection: Connection, chance: random.Random) -> None:
    whole = chance.choice([infer("slow", [1]), infer("echo", [1] * 40_000), post("/v2/logging", b'{"log_verbose_level": 0}')])
    connection.send(whole[: chance.randrange(1, len(whole))])


def aborted(connection: Connection, chance: random.Random) -> None:
    connection.send(infer(chance.choice(["echo", "slow", "failing"]), [1]) * chance.randint(1, 5))
    if chance.random() < 0.5:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def aborted_large(connection: Connection, chance: random.Random) -> None:
    connection.send(infer("echo", [1] * 200_000))
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half_closed(connection: Connection, chance: random.Random) -> None:
    connection.send(infer("slow", [1]))
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.response()[0] == 200
    assert connection.is_at_end()


ACTIONS: dict[Action, int] = {
    good_json: 30,
    good_binary: 10,
    large_json: 2,
    pipelined: 10,
    bad_requests: 15,
    malformed_http: 10,
    half_sent: 10,
    aborted: 15,
    aborted_large: 2,
    half_closed: 5,
}


class Chaos:
    """`client_count` threads that act at random for a time. `done` counts actions, `faults` are what went wrong."""

    def __init__(self, host_port: tuple[str, int], client_count: int, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self._host_port = host_port
        self._end = 0.0
        self._threads = [
            threading.Thread(target=self._act, args=(random.Random(seed * 1000 + index),)) for index in range(client_count)
        ]

    def run(self, seconds: float) -> None:
        """Act for `seconds` and wait for all clients to end."""
        self._end = time.monotonic() + seconds
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def act_once_each(self) -> None:
        """Let one client do each action once, so that everything the server makes when it is first needed is there."""
        for action in ACTIONS:
            self._try(action, random.Random(0))

    def _act(self, chance: random.Random) -> None:
        while time.monotonic() < self._end and not self.faults:
            (action,) = chance.choices(list(ACTIONS), list(ACTIONS.values()))
            self._try(action, chance)

    def _try(self, action: Action, chance: random.Random) -> None:
        try:
            with Connection(self._host_port) as connection:
                action(connection, chance)
            self.done[action.__name__] += 1
        except Exception as error:
            self.faults.append(f"{action.__name__}: {type(error).__name__}: {error}")

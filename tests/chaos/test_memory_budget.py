"""Clients that want four models at once where two fit, while one is loaded anew and a worker is killed."""

from __future__ import annotations

import os
import signal
import threading

import psutil
import pytest
import requests
from controlled_models import grpc_ask, http_ask, touch
from limited_memory import TWO_OF_THREE, evictions, value_models
from process_facts import facts
from tritonclient.utils import InferenceServerException
from waiting import wait_until

NAMES = ("a", "b", "c", "d")
CLIENTS, ROUNDS = 4, 4


class Client(threading.Thread):
    """Asks for all models in turn, beginning with another one each; keeps wrong answers and errors but for those of a kill."""

    def __init__(self, server, number: int) -> None:
        super().__init__()
        make = (http_ask, grpc_ask)[number % 2]
        asks = [(value, make(server, name)) for value, name in enumerate(NAMES, 1)]
        self._asks = asks[number:] + asks[:number]
        self.faults: list[str] = []
        self.answered = 0

    def run(self) -> None:
        for value, ask in self._asks * ROUNDS:
            try:
                answer = ask()
            except InferenceServerException as error:
                if "worker" not in error.message():
                    self.faults.append(error.message())
                continue
            self.answered += 1
            if answer != value:
                self.faults.append(f"{answer} is not {value}")


@pytest.mark.timeout(60)
def test_every_request_is_answered_and_nothing_is_left(tmp_path, serve):
    models = value_models(tmp_path / "models", *NAMES)
    server = serve(tmp_path / "models", TWO_OF_THREE, "--model-control-mode=explicit", "--load-model=*")
    clients = [Client(server, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for model in models[:2]:
        touch(model.folder / "config.pbtxt")
        answer = requests.post(f"{server.url}/v2/repository/models/{model.name}/load", json={}, timeout=20)
        # Without room a reload is refused, which must cost nobody an answer.
        assert answer.status_code == 200 or "--model-memory-limit" in answer.json()["error"]
    for worker in psutil.Process(server.pid).children()[:1]:
        os.kill(worker.pid, signal.SIGKILL)
    for client in clients:
        client.join()
    assert [client.faults for client in clients] == [[]] * CLIENTS
    # Those of the killed worker fail, and maybe those of the pause after it.
    assert sum(client.answered for client in clients) >= 0.75 * CLIENTS * ROUNDS * len(NAMES)
    assert sum(evictions(server, *NAMES)) > 2
    wait_until(lambda: facts(server.pid).children <= 2, what="two workers at most")
    assert [http_ask(server, name)() for name in NAMES] == [1, 2, 3, 4]
    assert "Traceback" not in server.log()

"""Workers are killed at random under load: every request gets a right answer or a clear error, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from fragile_models import Fragile, Left, error, left, many, outputs, workers, write_fragile, write_fragile_stream
from process_facts import facts
from python_models import write_echo
from waiting import wait_until

CLIENTS = 8
WORKERS = 7
# So many pieces of shared memory a worker may have that has run small batches: one each way, as descriptor and as mapping.
PIECES = 4
BATCHES = "dynamic_batching { max_queue_delay_microseconds: 1000 }"
# What an answer may say when the worker behind it was killed.
CLEAR = (
    "was killed by SIGKILL",
    "isn't ready",
    "can't be started again",
)
Ask = Callable[[int], None]


@pytest.fixture
def models(tmp_path, serve):
    folders = [write_fragile(tmp_path, "plain"), write_fragile(tmp_path, "batching", BATCHES, instances=2)]
    folders += [write_fragile(tmp_path, "caller", instances=2), write_fragile_stream(tmp_path), write_echo(tmp_path)]
    # A worker that is killed before it has served anything isn't proved: the next one would come late.
    server = serve(tmp_path, "--worker-restart-delay-secs=0.01", "--worker-restart-max-delay-secs=0.2")
    return {folder.name: Fragile(server, folder) for folder in folders}


class Load:
    """Clients that ask on; `done` counts right answers and errors, `faults` is what should never have come."""

    def __init__(self, models: dict[str, Fragile]) -> None:
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._models = models
        self._threads = [threading.Thread(target=self._ask_on, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask_on(self, number: int) -> None:
        chance = random.Random(number)
        kinds = [self._ask_plain, self._ask_batching, self._ask_caller, self._ask_stream]
        while not self._stop.is_set():
            self._try(chance.choice(kinds), chance.randrange(1, 1000))

    def _try(self, ask: Ask, value: int) -> None:
        try:
            ask(value)
        except Exception as fault:
            self.faults.append(f"{type(fault).__name__}: {fault}")

    def _ask_plain(self, value: int) -> None:
        self._check("plain", self._models["plain"].ask(value), 2 * value)

    def _ask_batching(self, value: int) -> None:
        self._check("batching", self._models["batching"].ask(value), 2 * value)

    def _ask_caller(self, value: int) -> None:
        self._check("caller", self._models["caller"].ask(value, do="call", model="plain"), 2 * value)

    def _ask_stream(self, value: int) -> None:
        events = self._models["stream"].stream(value, count=3)
        if "error" in events[-1]:
            self._count_error("stream", events[-1]["error"])
            events = events[:-1]
        else:
            self.done["stream"] += 1
        if [event["Y"] for event in events] != [value, value + 1, value + 2][: len(events)]:
            self.faults.append(f"stream of {value}: {events}")

    def _check(self, name: str, answer, expected: int) -> None:
        if answer.status_code != 200:
            self._count_error(name, error(answer))
        elif outputs(answer) != [expected]:
            self.faults.append(f"{name}: {outputs(answer)} instead of {expected}")
        else:
            self.done[name] += 1

    def _count_error(self, name: str, text: str) -> None:
        self.done["error"] += 1
        if not any(part in text for part in CLEAR):
            self.faults.append(f"{name}: {text}")


def kill_at_random(server, count: int, seed: int) -> None:
    """Kill `count` workers, each as soon as there is one."""
    chance = random.Random(seed)
    for _ in range(count):
        found: list[int] = []
        wait_until(lambda found=found: found.extend(pid for pid, _ in workers(server)) or found, what="a worker")
        os.kill(chance.choice(found), signal.SIGKILL)
        # No synchronisation: it only spreads the kills over the load.
        time.sleep(chance.uniform(0.01, 0.15))


def at_rest(models: dict[str, Fragile]) -> Left:
    """Wait until every model serves again and nothing runs, and return what the server holds then."""
    for model in models.values():
        wait_until(model.is_ready, what=f"{model.name} ready")
        wait_until(model.is_at_rest, what=f"{model.name} at rest")
    server = models["plain"].server
    wait_until(lambda: left(server).children == WORKERS, what="one worker an instance")
    with many(CLIENTS) as pool:
        assert all(pool.map(models["plain"].answers, range(CLIENTS)))
    wait_until(lambda: facts(server.pid).connections == 0, what="no connection")
    return left(server)


def survive(models: dict[str, Fragile], kills: int) -> None:
    server = models["plain"].server
    # Threads and connections are made when they are first needed, and stay.
    with Load(models) as warm_up:
        kill_at_random(server, 3, seed=1)
    before = at_rest(models)
    with Load(models) as load:
        kill_at_random(server, kills, seed=2)
    assert [*warm_up.faults, *load.faults] == []
    assert all(load.done[name] for name in ("plain", "batching", "caller", "stream"))
    now = at_rest(models)
    assert (now.descriptors, now.children) == (before.descriptors, before.children)
    assert now.threads <= before.threads + 1
    assert now.shared_memory <= WORKERS * PIECES
    assert server.stop() == 0
    assert [line for line in server.errors if "Traceback" in line and "model_log" not in line] == []
    assert "dropped without an answer" not in server.log()


def test_twenty_kills_under_load_lose_no_answer_and_leave_nothing(models):
    survive(models, 20)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_hundred_kills_under_load_lose_no_answer_and_leave_nothing(models):
    survive(models, 100)

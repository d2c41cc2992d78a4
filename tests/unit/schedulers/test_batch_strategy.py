"""A batch strategy decides who joins, sees what it may see, and does no harm whatever it does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from batching_plans import make_plan
from fake_execution import FakeInstance, Probe
from manual_clock import ManualClock

from naiad.config.plan import TensorPlan
from naiad.request.batch import CloseReason
from naiad.request.request import Sequence
from naiad.schedulers.custom.policy import StrategyPolicy
from naiad.schedulers.dynamic.scheduler import DynamicScheduler
from naiad.tensor.datatype import INT64

MS = 1_000_000
TENSORS = {"X": TensorPlan("X", INT64, (-1,), (-1, -1), (-1, -1))}


class TokenLimit:
    """At most 10 elements of X in a batch."""

    def begin(self) -> list[int]:
        return []

    def include(self, batch: list[int], request: Any) -> Any:
        batch.append(request.inputs["X"].shape[1])
        return sum(batch) <= 10


class Setup:
    """A scheduler with a strategy; `send` enqueues a request with so many elements for each of `lengths`."""

    def __init__(self, strategy: Any = None, **plan: Any) -> None:
        self.clock = ManualClock()
        self.instance = FakeInstance()
        made = make_plan(**plan)
        self.policy = StrategyPolicy(strategy or TokenLimit(), "/m/batchstrategy.py", made, TENSORS, self.clock)
        self.scheduler = DynamicScheduler([self.instance], self.clock, made, policy=self.policy)

    def send(self, *lengths: int) -> list[Probe]:
        probes = [Probe({"X": np.zeros((1, length), np.int64)}) for length in lengths]
        for probe in probes:
            self.scheduler.enqueue(probe.request)
        return probes

    def finish_all(self) -> None:
        self.clock.settle()
        while self.instance.is_busy:
            self.instance.finish()
            self.clock.settle()

    def run(self, *lengths: int) -> list[list[int]]:
        """Send, run all, and return the elements of the requests of each batch; each request ends once."""
        probes = self.send(*lengths)
        self.finish_all()
        assert [probe.end_count for probe in probes] == [1] * len(lengths)
        return [[request.inputs["X"].shape[1] for request in batch.requests] for batch in self.instance.batches]


def test_a_batch_has_as_many_requests_as_the_strategy_lets_in() -> None:
    setup = Setup()
    assert setup.run(4, 5, 2, 8, 1) == [[4, 5], [2, 8], [1]]
    assert setup.scheduler.close_counts[CloseReason.CUSTOM] == 2


def test_a_request_that_the_strategy_wants_in_no_batch_runs_alone() -> None:
    assert Setup().run(12, 3, 30, 20) == [[12], [3], [30], [20]]


def test_the_fixed_rules_hold_beside_the_strategy() -> None:
    assert Setup(max_batch_size=2).run(1, 1, 1, 9, 2) == [[1, 1], [1, 9], [2]]
    assert Setup(variable_inputs=("X",)).run(1, 1, 3, 3) == [[1, 1], [3, 3]]


def test_a_waiting_batch_goes_as_soon_as_the_next_request_is_refused() -> None:
    setup = Setup(delay_us=100_000)
    setup.send(4)
    setup.clock.settle()
    setup.send(3)
    setup.clock.settle()
    assert setup.instance.sizes == []
    setup.send(4)
    setup.clock.settle()
    assert setup.instance.sizes == [2]
    setup.instance.finish()
    setup.clock.settle()
    assert setup.instance.sizes == [2]
    setup.clock.advance(100 * MS)
    assert setup.instance.sizes == [2, 1]


def test_a_request_that_leaves_is_not_asked_about_and_counts_no_more() -> None:
    setup = Setup(delay_us=100_000)
    first, *_ = setup.send(8, 2)
    setup.clock.settle()
    first.request.cancel()
    setup.send(8)
    setup.clock.advance(100 * MS)
    assert setup.instance.sizes == [2]


def test_the_strategy_is_asked_about_the_requests_in_the_order_of_service_and_begins_each_batch_anew() -> None:
    said: list[Any] = []

    class Noting:
        def begin(self) -> int:
            said.append("begin")
            return len(said)

        def include(self, batch: int, request: Any) -> bool:
            said.append((batch, request.id))
            return request.id != "c"

    setup = Setup(Noting())
    for name, probe in zip("abc", [Probe({}), Probe({}), Probe({})]):
        probe.request.id = name
        setup.scheduler.enqueue(probe.request)
    setup.finish_all()
    assert said == ["begin", (1, "a"), (1, "b"), (1, "c"), "begin", (5, "c")]
    assert setup.instance.sizes == [2, 1]


def test_a_request_can_be_read_and_not_written() -> None:
    seen: dict[str, Any] = {}

    class Reading:
        def begin(self) -> None:
            return None

        def include(self, _: None, request: Any) -> bool:
            tensor = request.inputs["X"]
            seen.update({name: getattr(request, name) for name in ("id", "batch_size", "priority", "timeout_us")})
            seen.update(correlation_id=request.correlation_id, parameters=dict(request.parameters))
            seen.update(datatype=tensor.datatype, shape=tensor.shape, values=tensor.array.tolist(), inputs=list(request.inputs))
            with pytest.raises(ValueError, match="read-only"):
                tensor.array[0, 0] = 5
            with pytest.raises(TypeError):
                request.parameters["a"] = 1
            with pytest.raises(AttributeError):
                request.batch_size = 3
            return True

    setup = Setup(Reading())
    probe = Probe({"X": np.array([[7, 8]])})
    request = probe.request
    request.id, request.priority, request.timeout_us, request.parameters = "r", 2, 3, {"limit": 4}
    request.sequence = Sequence("s", True, False)
    setup.scheduler.enqueue(request)
    setup.finish_all()
    assert setup.policy.faults == {"error": 0, "slow": 0}
    assert seen == {
        "id": "r",
        "batch_size": 1,
        "priority": 2,
        "timeout_us": 3,
        "correlation_id": "s",
        "parameters": {"limit": 4},
        "datatype": "INT64",
        "shape": (1, 2),
        "values": [[7, 8]],
        "inputs": ["X"],
    }


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_a_strategy_that_raises_closes_the_batch_and_every_request_runs(error: BaseException, caplog) -> None:
    class Raising(TokenLimit):
        def include(self, batch: list[int], request: Any) -> bool:
            if request.inputs["X"].shape[1] == 3:
                raise error
            return True

    setup = Setup(Raising())
    assert setup.run(1, 2, 3, 4) == [[1, 2], [3], [4]]
    assert setup.policy.faults == {"error": 2, "slow": 0}
    [record] = caplog.records
    assert record.exc_info[1] is error
    assert "batch strategy /m/batchstrategy.py: include() failed, the batch is closed" in record.getMessage()


def test_a_strategy_whose_batches_do_not_begin_lets_each_request_run_alone(caplog) -> None:
    class Beginless(TokenLimit):
        def begin(self) -> list[int]:
            raise RuntimeError("no batch")

    setup = Setup(Beginless())
    assert setup.run(1, 2, 3) == [[1], [2], [3]]
    assert setup.policy.faults == {"error": 3, "slow": 0}
    assert "begin() failed, the batch is closed" in caplog.text


class Lying:
    """Code of the user's that runs when the answer is looked at."""

    @property
    def __class__(self) -> type:
        raise SystemExit(4)


@pytest.mark.parametrize("make", [lambda: None, lambda: 1, lambda: "yes", lambda: np.array([True, False]), Lying])
def test_an_answer_that_is_no_bool_closes_the_batch(make: Callable[[], Any], caplog) -> None:
    answer = make()

    class Odd(TokenLimit):
        def include(self, batch: list[int], request: Any) -> Any:
            return answer

    setup = Setup(Odd())
    assert setup.run(1, 2) == [[1], [2]]
    assert setup.policy.faults["error"] == 2
    assert f"TypeError: include() returned {type(answer).__name__}, must be True or False" in caplog.text


def test_a_bool_of_numpy_is_an_answer() -> None:
    class Numpy(TokenLimit):
        def include(self, batch: list[int], request: Any) -> Any:
            return np.sum(request.inputs["X"].array) < 5

    setup = Setup(Numpy())
    assert setup.run(1, 2) == [[1, 2]]
    assert setup.policy.faults == {"error": 0, "slow": 0}


def test_slow_decisions_are_counted_and_logged_now_and_then_with_how_many_were_left_out(caplog) -> None:
    class Slow(TokenLimit):
        def include(self, batch: list[int], request: Any) -> bool:
            setup.clock.now += 2 * MS
            return True

    setup = Setup(Slow())
    caplog.set_level(logging.WARNING, "naiad.batching")
    setup.run(1, 2, 3)
    assert setup.policy.faults == {"error": 0, "slow": 3}
    [record] = caplog.records
    assert "include() took 2.0 ms" in record.getMessage()
    setup.clock.advance(10_000 * MS)
    setup.run(4)
    assert "(2 messages of it were left out before)" in caplog.records[-1].getMessage()

"""`StrategyPolicy`: the fixed rules of the dynamic batcher, with a user's class that may keep requests out of a batch.

Owns the calls of that class, and that nothing it does reaches further than the batch it is asked about. Doesn't own loading it
(`repository.strategies`) nor the rules (`dynamic.policy`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from naiad.clock import Clock
from naiad.config.plan import DynamicBatchingPlan, TensorPlan
from naiad.request.request import InferRequest
from naiad.schedulers.custom.views import RequestView
from naiad.schedulers.dynamic.policy import BatchRules, Dispatch, Wait, next_batch

SLOW_NS = 1_000_000
"""A call that takes longer holds up every request of the server for too long."""

_LOG_INTERVAL_NS = 10_000_000_000
_log = logging.getLogger("naiad.batching")


class BatchStrategy(Protocol):
    """What a model's folder provides. It may do anything: raise, be slow, return what it shouldn't."""

    def begin(self) -> Any:
        """Return what stands for a new, empty batch."""

    def include(self, batch: Any, request: RequestView) -> bool:
        """Return whether `request`, the next in the order of service, may join `batch`."""


class StrategyPolicy:
    """See `BatchPolicy`. `faults` counts what went wrong, by "error" and "slow".

    Each decision begins a batch anew and asks for every request that the fixed rules allow in it, so a waiting batch is asked
    about again when a request comes. After a fault the batch is closed where it stands; a request alone always runs.
    """

    __slots__ = ("_clock", "_held_back", "_log_due_ns", "_rules", "_source", "_strategy", "_tensors", "faults")

    def __init__(
        self, strategy: BatchStrategy, source: str, plan: DynamicBatchingPlan, tensors: Mapping[str, TensorPlan], clock: Clock
    ) -> None:
        self._strategy = strategy
        self._source = source
        self._rules = BatchRules.of(plan)
        self._tensors = tensors
        self._clock = clock
        self._held_back = 0
        self._log_due_ns = 0
        self.faults = {"error": 0, "slow": 0}

    def decide(self, queue: Iterable[InferRequest], now_ns: int) -> Dispatch | Wait | None:
        """See `BatchPolicy.decide`."""
        batch = _FormedBatch(self)
        decision = next_batch(queue, self._rules, now_ns, batch.joins)
        # Whoever comes next may be refused, and then the batch need not wait.
        return replace(decision, wake_size=0) if isinstance(decision, Wait) else decision

    def begin(self) -> tuple[bool, Any]:
        """Return whether the strategy has begun a batch, and what stands for it."""
        return self._guarded("begin", self._begin)

    def joins(self, batch: Any, request: InferRequest) -> bool:
        """Return whether the strategy lets `request` into `batch`."""
        has_come_back, answer = self._guarded("include", lambda: self._include(batch, request))
        return has_come_back and answer

    def _begin(self) -> Any:
        return self._strategy.begin()

    def _include(self, batch: Any, request: InferRequest) -> bool:
        answer: object = self._strategy.include(batch, RequestView(request, self._tensors))
        # isinstance would ask the answer itself, which is user code as well.
        if type(answer) is bool or type(answer) is np.bool_:
            return bool(answer)
        raise TypeError(f"include() returned {type(answer).__name__}, must be True or False")

    def _guarded(self, name: str, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Return whether `call`, which runs user code, came back, and with what."""
        began_ns = self._clock.now_ns()
        try:
            answer = call()
        except BaseException:  # It runs on the server's own thread: not even SystemExit may get through.
            self.faults["error"] += 1
            self._log(f"{name}() failed, the batch is closed", with_traceback=True)
            return False, None
        took_ns = self._clock.now_ns() - began_ns
        if took_ns > SLOW_NS:
            self.faults["slow"] += 1
            self._log(f"{name}() took {took_ns / 1e6:.1f} ms, in which no request of the server went on")
        return True, answer

    def _log(self, text: str, *, with_traceback: bool = False) -> None:
        """Log now and then only: a strategy that is wrong is wrong many times a second."""
        now_ns = self._clock.now_ns()
        if now_ns < self._log_due_ns:
            self._held_back += 1
            return
        others = f" ({self._held_back} messages of it were left out before)" if self._held_back else ""
        self._held_back, self._log_due_ns = 0, now_ns + _LOG_INTERVAL_NS
        _log.warning("batch strategy %s: %s%s", self._source, text, others, exc_info=with_traceback)


class _FormedBatch:
    """One batch that is formed: begun when its first request comes."""

    __slots__ = ("_batch", "_has_begun", "_is_over", "_policy")

    def __init__(self, policy: StrategyPolicy) -> None:
        self._policy = policy
        self._has_begun = False
        self._is_over = False
        self._batch: Any = None

    def joins(self, request: InferRequest) -> bool:
        """Return whether `request` may join."""
        if not self._has_begun:
            self._has_begun = True
            has_come_back, self._batch = self._policy.begin()
            self._is_over = not has_come_back
        return not self._is_over and self._policy.joins(self._batch, request)

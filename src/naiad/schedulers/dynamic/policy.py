"""Which requests form the next batch: a pure function of the queue and the time.

Owns the decision of the dynamic batcher. Doesn't own time, timers, the queue or instances; it is asked only while an instance
is idle, so nothing is ever formed ahead of the instance that runs it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from naiad.config.plan import DynamicBatchingPlan
from naiad.request.batch import CloseReason
from naiad.request.request import InferRequest

BatchKey = tuple[object, ...]
"""What requests must have in common to run in one batch."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The settings of `DynamicBatchingPlan` in the form that decisions use. `delay_ns` 0 never waits."""

    max_size: int
    preferred_sizes: tuple[int, ...]
    preferred_set: frozenset[int]
    largest_preferred: int
    delay_ns: int
    equal_inputs: tuple[str, ...]
    is_equal_names: bool
    has_key: bool

    @classmethod
    def of(cls, plan: DynamicBatchingPlan) -> BatchRules:
        """Compile the rules once, when the model is loaded."""
        return cls(
            max_size=plan.max_batch_size,
            preferred_sizes=plan.preferred_batch_sizes,
            preferred_set=frozenset(plan.preferred_batch_sizes),
            largest_preferred=max(plan.preferred_batch_sizes, default=0),
            delay_ns=plan.max_queue_delay_us * 1000,
            equal_inputs=plan.variable_inputs,
            is_equal_names=plan.has_optional_inputs,
            has_key=bool(plan.variable_inputs) or plan.has_optional_inputs,
        )


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run the first `count` requests now, `size` items together; `reason` is why no more."""

    count: int
    size: int
    reason: CloseReason


@dataclass(frozen=True, slots=True)
class Wait:
    """All that is queued would form one batch, which may still grow: wait for more until `until_ns`.

    Deciding again before is of use only when the queue holds `wake_size` items or more, when a request with another key than
    `key` comes, or when a request has left the queue.
    """

    until_ns: int
    wake_size: int
    key: BatchKey

    def is_ended_by(self, request: InferRequest, size: int, rules: BatchRules) -> bool:
        """Return whether `request`, just queued, calls for a new decision; `size` is the queue's with it."""
        return size >= self.wake_size or (rules.has_key and batch_key(request, rules) != self.key)


class BatchPolicy(Protocol):
    """Decides what an idle instance runs. Must change nothing but what it has learnt; asked on the loop thread, often."""

    def decide(self, queue: Iterable[InferRequest], now_ns: int) -> Dispatch | Wait | None:
        """Return the next batch of `queue`, how long to wait for more, or None for an empty queue."""


class LoadObserver(Protocol):
    """Is told what a dynamic batcher sees of its load. Loop thread only; must be quick."""

    def arrived(self, size: int, now_ns: int) -> None:
        """A request of `size` items was queued."""

    def ran(self, size: int, started_ns: int, ended_ns: int) -> None:
        """An instance had a batch of `size` items from `started_ns` to `ended_ns`."""


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """See `BatchPolicy`: by the numbers of the configuration."""

    rules: BatchRules

    def decide(self, queue: Iterable[InferRequest], now_ns: int) -> Dispatch | Wait | None:
        """See `BatchPolicy.decide` and `next_batch`."""
        return next_batch(queue, self.rules, now_ns)


def batch_key(request: InferRequest, rules: BatchRules) -> BatchKey:
    """Return what must be equal in a batch: the shapes, without the batch dimension, of inputs with a variable dim that aren't
    ragged, and the names of the inputs when some are optional.
    """
    inputs = request.inputs
    if rules.is_equal_names:
        shapes = [inputs[name].shape[1:] if name in inputs else None for name in rules.equal_inputs]
        return frozenset(inputs), *shapes
    return tuple([inputs[name].shape[1:] for name in rules.equal_inputs])


def next_batch(
    queue: Iterable[InferRequest], rules: BatchRules, now_ns: int, joins: Callable[[InferRequest], bool] | None = None
) -> Dispatch | Wait | None:
    """Decide what an idle instance should run of `queue`, which yields the requests in the order of service.

    The batch is the longest head of the queue that fits, unless a shorter head has one of the preferred sizes: that one goes
    first, and the rest stays for the next instance. When nothing is preferred yet and the batch can still grow, wait until the
    oldest request is `delay_ns` old; from then on everything that fits goes. Requests are never split. None for an empty queue.

    `joins`, if given, is asked for each request that fits, and closes the batch when it says no; a first one runs all the same.

    Looks at no more requests than fit in a batch and one, whatever the length of the queue.
    """
    count, size, best, oldest_ns, closed, key = _walk(queue, rules, joins)
    is_delay_over = rules.delay_ns != 0 and now_ns - oldest_ns >= rules.delay_ns
    if best is not None and not is_delay_over:
        return Dispatch(*best, _reason_of_size(best[1], rules))
    if count == 0:
        return None
    if closed is not None or is_delay_over or rules.delay_ns == 0 or size >= rules.largest_preferred:
        return Dispatch(count, size, _reason(size, rules, closed, is_delay_over))
    sizes = rules.preferred_sizes
    return Wait(oldest_ns + rules.delay_ns, sizes[bisect_right(sizes, size)], key)


def _reason(size: int, rules: BatchRules, closed: CloseReason | None, is_delay_over: bool) -> CloseReason:
    """Return why a batch goes with all that could join it; `closed` is why the next request can't."""
    if size in rules.preferred_set or size >= rules.max_size:
        return _reason_of_size(size, rules)
    if closed is not None:
        return closed
    if is_delay_over:
        return CloseReason.DELAY
    return CloseReason.FULL if size >= rules.largest_preferred else CloseReason.INSTANCE_FREE


def _reason_of_size(size: int, rules: BatchRules) -> CloseReason:
    """Return why a batch goes that has a preferred size, or would go beyond the largest of them with the next request."""
    return CloseReason.PREFERRED if size in rules.preferred_set and size < rules.max_size else CloseReason.FULL


def _walk(
    queue: Iterable[InferRequest], rules: BatchRules, joins: Callable[[InferRequest], bool] | None
) -> tuple[int, int, tuple[int, int] | None, int, CloseReason | None, BatchKey]:
    """Go along the queue as far as one batch reaches.

    Returns how many requests fit, their items, the same two numbers for the preferred head (None without one), when the oldest
    of them was queued, why the next request can't join (None when it can or isn't there), and the batch's key.
    """
    count = size = oldest_ns = 0
    best: tuple[int, int] | None = None
    key: BatchKey = ()
    largest, preferred, delay_ns, has_key = rules.largest_preferred, rules.preferred_set, rules.delay_ns, rules.has_key
    for request in queue:
        grown = size + request.batch_size
        if count == 0:
            oldest_ns = request.enqueued_ns
            key = batch_key(request, rules) if has_key else ()
        else:
            if grown > largest:
                best = best or (count, size)
                if delay_ns == 0:
                    break  # Without a delay the preferred head goes, however far the rest of the queue would reach.
            if grown > rules.max_size:
                return count, size, best, oldest_ns, CloseReason.FULL, key
            if has_key and batch_key(request, rules) != key:
                return count, size, best, oldest_ns, CloseReason.UNLIKE, key
        if joins is not None and not joins(request):
            return count or 1, size or grown, best, oldest_ns, CloseReason.CUSTOM, key
        if delay_ns:
            oldest_ns = min(oldest_ns, request.enqueued_ns)
        count += 1
        size = grown
        if size in preferred:
            best = (count, size)
    return count, size, best, oldest_ns, None, key

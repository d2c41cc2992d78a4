"""The errors with which schedulers refuse requests: UNAVAILABLE, since the same request may pass a moment later.

Owns their texts, which clients match on. Doesn't decide when to refuse.
"""

from __future__ import annotations

from naiad.errors import Code, FailureReason, InferenceServerError, RefusedError, unavailable
from naiad.request.request import InferRequest


def queue_full(request: InferRequest) -> InferenceServerError:
    """Return the error for a request whose level holds `max_queue_size` requests already."""
    return RefusedError(_named(request, "Exceeds maximum queue size"), "queue_full", 1)


def too_late(request: InferRequest, what: str, needed_ns: int, allowed_ns: int) -> InferenceServerError:
    """Return the error for a request that would come too late: by estimate it needs `needed_ns` until `what` ("it runs", "it is
    answered"), of which it has `allowed_ns`. It may try again when the queue has become so much shorter, in 1 s at the soonest.
    """
    retry_after_s = max(1, -(-(needed_ns - allowed_ns) // 1_000_000_000))
    text = (
        f"the model is overloaded: by the speed of its last batches it takes about {_ms(needed_ns)} ms until {what}, the "
        f"request's deadline is in {_ms(allowed_ns)} ms; retry in {retry_after_s} s"
    )
    return RefusedError(_named(request, text), "too_late", retry_after_s)


def timeout_expired(request: InferRequest) -> InferenceServerError:
    """Return the error for a request that waited in the queue longer than it may."""
    return InferenceServerError(Code.UNAVAILABLE, _named(request, "Request timeout expired"), FailureReason.REJECTED)


def stopping() -> InferenceServerError:
    """Return the error for a request that comes after `stop`."""
    return unavailable("Server is stopping, scheduler for model has stopped accepting new inference requests")


def _named(request: InferRequest, text: str) -> str:
    return f"[request id: {request.id or '<id_unknown>'}] {text}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3g}" if ns < 100_000_000 else str(round(ns / 1e6))

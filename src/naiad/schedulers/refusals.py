"""The errors with which schedulers refuse requests: UNAVAILABLE, since the same request may pass a moment later.

Owns their texts, which clients match on. Doesn't decide when to refuse.
"""

from __future__ import annotations

from naiad.errors import Code, FailureReason, InferenceServerError, unavailable
from naiad.request.request import InferRequest


def queue_full(request: InferRequest) -> InferenceServerError:
    """Return the error for a request whose level holds `max_queue_size` requests already."""
    return _rejected(request, "Exceeds maximum queue size")


def timeout_expired(request: InferRequest) -> InferenceServerError:
    """Return the error for a request that waited in the queue longer than it may."""
    return _rejected(request, "Request timeout expired")


def stopping() -> InferenceServerError:
    """Return the error for a request that comes after `stop`."""
    return unavailable("Server is stopping, scheduler for model has stopped accepting new inference requests")


def _rejected(request: InferRequest, text: str) -> InferenceServerError:
    message = f"[request id: {request.id or '<id_unknown>'}] {text}"
    return InferenceServerError(Code.UNAVAILABLE, message, FailureReason.REJECTED)

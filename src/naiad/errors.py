"""The errors that reach a client, in one tree.

    Exception
      └─ InferenceServerError       code + message; every error that a client or operator is meant to read
           ├─ DecoupledModelError   a call that takes one response met a model that may give any number
           └─ RefusedError          a queue doesn't take a request now; says why and when to try again

Owns the codes and the exception. Doesn't own the HTTP and gRPC statuses: each frontend keeps its own table.
"""

from __future__ import annotations

from enum import Enum


class Code(Enum):
    """What kind of failure it is; the names are gRPC's, the meaning is the KServe v2 protocol's."""

    UNKNOWN = "UNKNOWN"
    INTERNAL = "INTERNAL"
    NOT_FOUND = "NOT_FOUND"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    UNAVAILABLE = "UNAVAILABLE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    CANCELLED = "CANCELLED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNAUTHENTICATED = "UNAUTHENTICATED"


class FailureReason(Enum):
    """Why an accepted request failed, as the `reason` label of `nv_inference_request_failure` says it."""

    REJECTED = "REJECTED"
    CANCELED = "CANCELED"
    BACKEND = "BACKEND"
    OTHER = "OTHER"


class InferenceServerError(Exception):
    """A failure with a code and a message that says what is wrong, with which value, and what to do.

    `reason` says how an already accepted request counts in the failure metrics. `retry_after_s` is in how many whole seconds
    the client may try again, 0 where nobody knows; `refusal` is the label of a request that was never accepted, "" for others.
    """

    retry_after_s: int = 0
    refusal: str = ""

    def __init__(self, code: Code, message: str, reason: FailureReason = FailureReason.OTHER) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason


class DecoupledModelError(InferenceServerError):
    """UNIMPLEMENTED: the call takes exactly one response, the model may give any number. Who made the call may say it in words
    of its own.
    """

    def __init__(self, model_name: str) -> None:
        message = f"model '{model_name}' is decoupled, it may give any number of responses: this call takes exactly one"
        super().__init__(Code.UNIMPLEMENTED, message)


class RefusedError(InferenceServerError):
    """UNAVAILABLE: the queue doesn't take the request now. `refusal` says why, as a label of a metric: "queue_full" or
    "too_late"; `retry_after_s`, at least 1, when the same request may pass.
    """

    def __init__(self, message: str, refusal: str, retry_after_s: int) -> None:
        super().__init__(Code.UNAVAILABLE, message, FailureReason.REJECTED)
        self.refusal = refusal
        self.retry_after_s = retry_after_s


def invalid_argument(message: str) -> InferenceServerError:
    """Return the error for a client's own fault."""
    return InferenceServerError(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> InferenceServerError:
    """Return the error for a name that the server doesn't know."""
    return InferenceServerError(Code.NOT_FOUND, message)


def unavailable(message: str) -> InferenceServerError:
    """Return the error for something that may work later: a client may retry it."""
    return InferenceServerError(Code.UNAVAILABLE, message)


def unauthenticated(message: str) -> InferenceServerError:
    """Return the error for a request without a valid API key."""
    return InferenceServerError(Code.UNAUTHENTICATED, message)


def unimplemented(message: str) -> InferenceServerError:
    """Return the error for something that the server or this model doesn't do."""
    return InferenceServerError(Code.UNIMPLEMENTED, message)


def internal(message: str) -> InferenceServerError:
    """Return the error for the server's or the model's own fault."""
    return InferenceServerError(Code.INTERNAL, message)


def cancelled(message: str = "request was cancelled") -> InferenceServerError:
    """Return the error of a request that its client has given up."""
    return InferenceServerError(Code.CANCELLED, message, FailureReason.CANCELED)

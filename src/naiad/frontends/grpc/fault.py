"""What a client is told of a fault of the server's own.

Owns the text, and that the log has the rest.
"""

from __future__ import annotations

import logging

from naiad.errors import InferenceServerError, internal

_log = logging.getLogger("naiad.grpc")


def logged_fault() -> InferenceServerError:
    """Write the exception that is being handled to the log and return the error that its client gets."""
    _log.exception("a call failed by a fault of the server")
    return internal("internal error, see the server's log")

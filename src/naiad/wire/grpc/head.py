"""The head of a gRPC call: which RPC, how its messages are packed, how long it may take; and the head and trailers of answers.

Owns the rules of gRPC over HTTP/2 for these fields. Which RPCs exist is the frontend's concern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from naiad.errors import InferenceServerError, internal, invalid_argument
from naiad.wire.compression import SUPPORTED, check_coding

HeaderFields = Sequence[tuple[bytes, bytes]]

CODINGS = ",".join(SUPPORTED).encode()

_CONTENT_TYPE = b"application/grpc"
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS_OF_UNIT = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
# Header fields carry visible ASCII; everything else, and the percent sign, is percent-encoded in UTF-8.
_ESCAPED = re.compile(rb"[^\x20-\x24\x26-\x7e]")
_MAX_MESSAGE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class CallHead:
    """What the request's head says. `timeout_s` is in seconds, None for none. `coding` is how compressed messages of the client
    are packed, `accepted` are the codings it takes. `http_status` is other than 200 for what is no gRPC call at all, `error`
    an error that ends the call at once.
    """

    path: bytes
    timeout_s: float | None = None
    coding: str = "identity"
    accepted: tuple[str, ...] = ()
    http_status: int = 200
    error: InferenceServerError | None = None


def read_head(fields: HeaderFields) -> CallHead:
    """Return the head that these fields (names in lower case) make."""
    values = dict(fields)
    path = values.get(b":path", b"")
    if values.get(b":method") != b"POST":
        return CallHead(path, http_status=405)
    content_type = values.get(b"content-type", b"")
    if not _is_grpc(content_type):
        return CallHead(path, http_status=415)
    coding = values.get(b"grpc-encoding", b"identity").decode("latin-1")
    accepted = tuple(values.get(b"grpc-accept-encoding", b"").decode("latin-1").replace(" ", "").split(","))
    try:
        timeout_s = _timeout(values.get(b"grpc-timeout"))
        check_coding(coding)
    except InferenceServerError as error:
        return CallHead(path, error=error)
    return CallHead(path, timeout_s, coding, accepted)


def status_fields(status: int, message: str, retry_after_s: int = 0) -> list[tuple[bytes, bytes]]:
    """Return the trailers that end a call with this status and text; clients with a retry policy keep to `retry_after_s`, 0
    says nothing.
    """
    if not status and not message:
        return [(b"grpc-status", b"0")]
    fields = [(b"grpc-status", b"%d" % status), (b"grpc-message", _percent_encoded(message))]
    if retry_after_s:
        fields.append((b"grpc-retry-pushback-ms", b"%d" % (retry_after_s * 1000)))
    return fields


def check_named(coding: str) -> None:
    """Raise INTERNAL for a compressed message of a call whose `coding` is none."""
    if coding == "identity":
        raise internal("a message is flagged as compressed, but the call has no grpc-encoding")


def _is_grpc(content_type: bytes) -> bool:
    rest = content_type[len(_CONTENT_TYPE) :]
    return content_type.startswith(_CONTENT_TYPE) and (not rest or rest[:1] == b";" or rest.partition(b";")[0] == b"+proto")


def _timeout(value: bytes | None) -> float | None:
    if value is None:
        return None
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise invalid_argument(
            f"grpc-timeout must be 1 to 8 digits and a unit of H, M, S, m, u, n; it is '{value[:50].decode('latin-1')}'"
        )
    return int(found[1]) * _SECONDS_OF_UNIT[found[2]]


def _percent_encoded(text: str) -> bytes:
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) > _MAX_MESSAGE_BYTES:
        encoded = encoded[:_MAX_MESSAGE_BYTES].decode("utf-8", "ignore").encode() + b"..."
    return _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], encoded)

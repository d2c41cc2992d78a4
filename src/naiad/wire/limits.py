"""The limits that a codec holds a client's message to. Owns the values and the text that names size, limit and flag."""

from __future__ import annotations

from dataclasses import dataclass

from naiad.errors import invalid_argument


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How large a request may be.

    `max_json_size_bytes` bounds the JSON part of a request, each tensor decoded from JSON, a raw binary request and a
    decompressed body. It doesn't bound the binary tensors of an ordinary request.
    """

    max_json_size_bytes: int

    def check(self, what: str, size_bytes: int) -> None:
        """Raise INVALID_ARGUMENT when `what` (a noun, for the text) has more bytes than are allowed."""
        if size_bytes > self.max_json_size_bytes:
            raise invalid_argument(
                f"{what} of {size_bytes} bytes exceeds the limit of {self.max_json_size_bytes} bytes, "
                "raise it with --http-max-input-size"
            )

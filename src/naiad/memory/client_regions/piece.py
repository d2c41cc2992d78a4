"""The rule which bytes of a region a request may name, the same for every kind of memory."""

from __future__ import annotations

from naiad.errors import invalid_argument


def check_piece(region_name: str, region_bytes: int, offset: int, size_bytes: int) -> None:
    """Raise INVALID_ARGUMENT unless `size_bytes` bytes from `offset` lie in a region of `region_bytes` bytes."""
    if offset >= region_bytes:
        raise invalid_argument(
            f"Invalid offset for shared memory region: '{region_name}', offset {offset} must be less than the region's "
            f"{region_bytes} bytes"
        )
    if offset + size_bytes > region_bytes:
        raise invalid_argument(
            f"Invalid offset + byte size for shared memory region: '{region_name}', offset {offset} + byte size {size_bytes} "
            f"exceeds the region's {region_bytes} bytes"
        )

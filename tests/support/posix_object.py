"""A POSIX shared memory object of a test's own, which nobody unlinks but the test."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex


class PosixObject:
    """`key` is what shm_open knows it by. A context manager that unlinks it."""

    def __init__(self, size_bytes: int) -> None:
        self.key = f"/naiad-test-{token_hex(8)}"
        self.path = Path("/dev/shm" + self.key)
        self.path.touch(0o600)
        self.resize(size_bytes)

    def __enter__(self) -> PosixObject:
        return self

    def __exit__(self, *_error: object) -> None:
        self.path.unlink(missing_ok=True)

    def resize(self, size_bytes: int) -> None:
        """Cut it or make it larger, as its owner can at any time."""
        os.truncate(self.path, size_bytes)

    def write(self, data: bytes, offset: int = 0) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def read(self, size_bytes: int, offset: int = 0) -> bytes:
        return self.path.read_bytes()[offset : offset + size_bytes]

"""A worker's first frame: whether this server can use what said it.

Owns what is asked of an interpreter: the version of the frames, and Python's.
"""

from __future__ import annotations

import json

from naiad.worker.frames import VERSION, Frame

_LEAST_PYTHON = (3, 10)


def problem_of(frame: Frame) -> str:
    """Return what is wrong with a HELLO, as it reads after "was killed: ", or "" when all is well."""
    if frame.id != VERSION:
        return f"it speaks version {frame.id} of the frames, this server {VERSION}; its naiad must be the server's"
    try:
        python = json.loads(frame.tail)["python"]
        version = tuple(map(int, python.split(".")[:2]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its first frame doesn't say its Python's version: {frame.tail[:200]!r}"
    if version < _LEAST_PYTHON:
        return f"it runs on Python {python}, a model needs Python {'.'.join(map(str, _LEAST_PYTHON))} or later"
    return ""

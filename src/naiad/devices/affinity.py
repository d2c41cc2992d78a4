"""Binding the calling thread to CPUs, for good or for a while. Owns the system's call, not who is bound to what.

Memory isn't bound: Linux puts a page on the node of the thread that writes it first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

IS_AVAILABLE = hasattr(os, "sched_setaffinity")


def bind_thread(cpus: frozenset[int]) -> None:
    """Let the calling thread, and those that it starts, run on `cpus` only; with none it stays as it is.

    Raises OSError when the system refuses it.
    """
    if cpus:
        os.sched_setaffinity(0, cpus)


@contextmanager
def bound(cpus: frozenset[int]) -> Iterator[None]:
    """Bind the calling thread for the time of the context; threads that it starts meanwhile stay bound. No CPUs: no change."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def unbound() -> Iterator[None]:
    """Let the calling thread run where the process's main thread may, for what it starts meanwhile and isn't its own."""
    with bound(frozenset(os.sched_getaffinity(os.getpid())) if IS_AVAILABLE else frozenset()):
        yield

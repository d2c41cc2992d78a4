"""What the kernel says of a process: the numbers that grow when something leaks."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """`connections` are its sockets that don't listen, in whatever state; `resident_bytes` is the memory that it holds."""

    descriptors: int
    threads: int
    connections: int
    children: int
    resident_bytes: int


def facts(pid: int) -> ProcessFacts:
    """Return the facts of a live process."""
    process = psutil.Process(pid)
    return ProcessFacts(
        process.num_fds(),
        process.num_threads(),
        sum(connection.status != psutil.CONN_LISTEN for connection in process.net_connections("tcp")),
        len(process.children(recursive=True)),
        process.memory_info().rss,
    )


def is_alive(pid: int) -> bool:
    """Return whether a process runs: neither gone nor a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

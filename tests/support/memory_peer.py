"""Another process that gets segments over a socket: what the far side of an arena sees and may do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

_PROGRAM = """
import json, os, socket, sys
from naiad.memory.mapping import Mapping

control, descriptors = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
mapping = Mapping(writable=True)
lines = control.makefile("r")
for line in lines:
    asked = json.loads(line)
    answer = None
    if asked["do"] == "map":
        _, fds, _, _ = socket.recv_fds(descriptors, 1, 1)
        mapping.add(asked["segment"], fds[0], asked["size"])
    elif asked["do"] == "resize":
        _, fds, _, _ = socket.recv_fds(descriptors, 1, 1)
        try:
            os.ftruncate(fds[0], asked["size"])
        except PermissionError as error:
            answer = type(error).__name__
        os.close(fds[0])
    elif asked["do"] == "read":
        answer = bytes(mapping.view(*asked["block"])).hex()
    elif asked["do"] == "write":
        mapping.view(*asked["block"])[:] = bytes.fromhex(asked["data"])
    elif asked["do"] == "forget":
        mapping.remove(asked["segment"])
    control.sendall(json.dumps(answer).encode() + b"\\n")
"""


class MemoryPeer:
    """Asks the other process one thing at a time; every method returns when it is done there."""

    def __init__(self, control: socket.socket, descriptors: socket.socket, lines: TextIO) -> None:
        self._control = control
        self._descriptors = descriptors
        self._lines = lines

    def map(self, segment: int, fd: int, size: int) -> None:
        self._ask({"do": "map", "segment": segment, "size": size}, fd)

    def resize(self, fd: int, size: int) -> str | None:
        """Return the name of the error, None when the segment has the new size."""
        answer: str | None = self._ask({"do": "resize", "size": size}, fd)
        return answer

    def read(self, block: tuple[int, int, int]) -> bytes:
        return bytes.fromhex(self._ask({"do": "read", "block": block}))

    def write(self, block: tuple[int, int, int], data: bytes) -> None:
        self._ask({"do": "write", "block": block, "data": data.hex()})

    def forget(self, segment: int) -> None:
        self._ask({"do": "forget", "segment": segment})

    def _ask(self, asked: dict[str, Any], fd: int | None = None) -> Any:
        if fd is not None:
            socket.send_fds(self._descriptors, [b"\0"], [fd])
        self._control.sendall(json.dumps(asked).encode() + b"\n")
        return json.loads(self._lines.readline())


@contextmanager
def memory_peer() -> Iterator[MemoryPeer]:
    """Start the process; it ends with the context."""
    with ExitStack() as sockets:
        (control, far_control), (descriptors, far_descriptors) = socket.socketpair(), socket.socketpair()
        for sock in (control, descriptors):
            sockets.enter_context(sock)
        with far_control, far_descriptors:
            numbers = [far_control.fileno(), far_descriptors.fileno()]
            process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *map(str, numbers)], pass_fds=numbers)
        with process, control.makefile("r") as lines:
            yield MemoryPeer(control, descriptors, lines)
            control.shutdown(socket.SHUT_WR)
            assert process.wait() == 0

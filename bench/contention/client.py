"""Sends one recorded request at each moment of a trace and notes when its answer came: `python -m bench.contention.client`.

A process of its own, one thread, no framework: one wait for both, the next arrival (in microseconds) and answers. A request
that finds no free connection waits for one, and its latency counts from the moment of the trace: a slow server isn't spared.
"""

from __future__ import annotations

import argparse
import re
import select
import socket
import time
from collections import deque
from pathlib import Path

import numpy as np

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
PATIENCE_S = 20.0
"""How long after the last arrival answers are waited for."""
LOST = 0
"""The status of a request that was never answered."""


class Connection:
    """One kept-alive connection of HTTP/1.1 with at most one request on its way, the one numbered `number`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.number = -1
        self._received = b""

    def send(self, number: int, request: bytes) -> None:
        """Send the whole request, which is small: an idle connection takes it at once."""
        self.number = number
        if self.socket.send(request) != len(request):
            raise OSError(f"the request has {len(request)} bytes, more than a socket takes at once")

    def receive(self) -> int | None:
        """Read what is there; return the status once the answer is whole, LOST when the server hung up, None before."""
        chunk = self.socket.recv(65536)
        if not chunk:
            return LOST
        self._received += chunk
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return None
        length = LENGTH.search(head)
        if len(body) < (int(length[1]) if length else 0):
            return None
        self._received = b""
        return int(head.split(b" ", 2)[1])


class Client:
    """Follows `arrivals` (seconds); `latencies` (seconds from the trace's moment), `statuses` and `lags` (seconds from there to
    the sending) are by request.
    """

    def __init__(self, address: tuple[str, int], request: bytes, arrivals: np.ndarray, connections: int) -> None:
        self._address, self._request, self._arrivals = address, request, arrivals.tolist()
        self.latencies, self.lags = np.full(len(arrivals), np.nan), np.full(len(arrivals), np.nan)
        self.statuses = np.full(len(arrivals), LOST, np.int32)
        self._epoll = select.epoll()
        self._open: dict[int, Connection] = {}
        self._free: deque[Connection] = deque()
        for _ in range(connections):
            self._connect()

    def run(self) -> None:
        """Send everything in its time and wait for the answers, PATIENCE_S at most."""
        began = time.monotonic()
        end = self._arrivals[-1] + PATIENCE_S
        next_number = done = 0
        while done < len(self._arrivals):
            now = time.monotonic() - began
            if now > end:
                return
            while next_number < len(self._arrivals) and self._arrivals[next_number] <= now and self._free:
                self._send(next_number, now)
                next_number += 1
            is_waiting = next_number < len(self._arrivals) and bool(self._free)
            until = self._arrivals[next_number] if is_waiting else end
            # epoll itself counts in milliseconds; select on it waits as exactly as the kernel can.
            select.select([self._epoll], [], [], max(until - (time.monotonic() - began), 0))
            done += self._receive(began)

    def _send(self, number: int, now: float) -> None:
        self.lags[number] = now - self._arrivals[number]
        self._free.popleft().send(number, self._request)

    def _receive(self, began: float) -> int:
        """Read all that is there; return how many requests are done with it."""
        done = 0
        for descriptor, _ in self._epoll.poll(0):
            connection = self._open[descriptor]
            status = connection.receive()
            if status is None:
                continue
            if connection.number >= 0:
                self.latencies[connection.number] = time.monotonic() - began - self._arrivals[connection.number]
                self.statuses[connection.number] = status
                connection.number = -1
                done += 1
                if status != LOST:
                    self._free.append(connection)
            if status == LOST:
                self._replace(connection)
        return done

    def _replace(self, connection: Connection) -> None:
        self._epoll.unregister(connection.socket)
        del self._open[connection.socket.fileno()]
        if connection in self._free:
            self._free.remove(connection)
        connection.socket.close()
        self._connect()

    def _connect(self) -> None:
        connection = Connection(self._address)
        self._open[connection.socket.fileno()] = connection
        self._epoll.register(connection.socket, select.EPOLLIN)
        self._free.append(connection)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.socket.close()
        self._epoll.close()


def main() -> None:
    """Follow the trace and write latencies, statuses and lags to one .npz file."""
    arguments = _parse()
    host, _, port = arguments.address.rpartition(":")
    client = Client((host, int(port)), arguments.request.read_bytes(), np.load(arguments.arrivals), arguments.connections)
    client.run()
    client.close()
    np.savez(arguments.answers, latencies=client.latencies, statuses=client.statuses, lags=client.lags)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.contention.client", description="Follow one trace of arrivals.")
    parser.add_argument("--address", required=True, help="HOST:PORT")
    parser.add_argument("--request", type=Path, required=True, help="the bytes of one HTTP request")
    parser.add_argument("--arrivals", type=Path, required=True, help="seconds from the start, a .npy file")
    parser.add_argument("--answers", type=Path, required=True, help="where to write what came back, a .npz file")
    parser.add_argument("--connections", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The step between a model's response and the frontend that puts outputs into clients' shared memory.

Owns the copy, on a thread when it is large or goes to a GPU, the order of responses meanwhile, and when the regions are free
again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from naiad.errors import InferenceServerError, internal
from naiad.memory.client_regions.region import LARGE_BYTES
from naiad.memory.client_regions.registry import AnyRegion
from naiad.request.call import RegionSlice
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse, OutputTensor
from naiad.wire.binary_form import bytes_of

Completion = Callable[[], None]
RunOnThread = Callable[[Callable[[], Completion]], None]
"""Runs a job on a thread and what it returns on the loop thread."""

# Encoding as many takes some 0.3 ms.
_MANY_STRINGS = 2048

_log = logging.getLogger("naiad.core")


class RegionSink:
    """Passes responses on with the placed outputs written into their regions. Loop thread only."""

    __slots__ = ("_has_ended", "_is_writing", "_on_free", "_places", "_resumed", "_run_on_thread", "_sink", "_waiting")

    def __init__(self, sink: ResponseSink, run_on_thread: RunOnThread) -> None:
        self._sink = sink
        self._run_on_thread = run_on_thread
        self._places: dict[str, tuple[AnyRegion, RegionSlice]] = {}
        self._waiting: deque[tuple[InferResponse | None, bool]] = deque()
        self._resumed: list[Callable[[], None]] = []
        self._is_writing = False
        self._has_ended = False
        self._on_free: Callable[[], None] | None = None

    def place(self, output_name: str, region: AnyRegion, piece: RegionSlice) -> None:
        """Say where an output goes; of an output that is listed twice the last place counts."""
        region.hold()
        before = self._places.get(output_name)
        self._places[output_name] = (region, piece)
        if before is not None:
            before[0].release()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the request has ended and nothing is written any more, at once when that is so."""
        self._on_free = callback
        if self._has_ended:
            self.release()

    def release(self) -> None:
        """Give the regions back: nothing is written any more. Does nothing the second time."""
        self._has_ended = True
        self._waiting.clear()
        if not self._is_writing:
            for region, _ in self._places.values():
                region.release()
            self._places = {}
            on_free, self._on_free = self._on_free, None
            if on_free is not None:
                on_free()

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if self._has_ended:
            return
        if self._is_writing:
            self._waiting.append((response, is_final))
        elif response is None or not any(output.name in self._places for output in response.outputs):
            self._pass_on(response, is_final)
        elif self._is_slow(response):
            self._write_on_thread(response, is_final)
        else:
            self._end_write(response, is_final, self._write(response))

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        if not self._has_ended:
            self.release()
            self._sink.fail(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`: a client doesn't keep up while its memory is written."""
        if self._is_writing:
            self._resumed.append(callback)
            return False
        return self._sink.when_writable(callback)

    def _is_slow(self, response: InferResponse) -> bool:
        placed = [output for output in response.outputs if output.name in self._places]
        is_on_device = any(self._places[output.name][0].is_on_device for output in placed)
        return is_on_device or sum(map(_size_bytes, placed)) > LARGE_BYTES

    def _write_on_thread(self, response: InferResponse, is_final: bool) -> None:
        self._is_writing = True

        def write() -> Completion:
            error = self._write(response)
            return lambda: self._end_write(response, is_final, error)

        self._run_on_thread(write)

    def _end_write(self, response: InferResponse, is_final: bool, error: InferenceServerError | None) -> None:
        self._is_writing = False
        if self._has_ended:
            self.release()
        elif error is not None:
            self.fail(error)
        else:
            self._pass_on(response, is_final)
        while self._waiting and not self._is_writing:
            self.send(*self._waiting.popleft())
        if not self._is_writing:
            resumed, self._resumed = self._resumed, []
            for callback in resumed:
                if self._sink.when_writable(callback):
                    callback()

    def _pass_on(self, response: InferResponse | None, is_final: bool) -> None:
        if is_final:
            self.release()
        self._sink.send(response, is_final)

    def _write(self, response: InferResponse) -> InferenceServerError | None:
        """Write the placed outputs; return what went wrong. Runs on any thread."""
        try:
            for output in response.outputs:
                if output.name in self._places:
                    _write_output(output, *self._places[output.name])
        except InferenceServerError as error:
            return error
        except Exception:
            _log.exception("writing an output to shared memory failed by a fault of the server")
            return internal("internal error, see the server's log")
        return None


def _size_bytes(output: OutputTensor) -> int:
    """Return how much is to be copied. Many strings count as large, whatever they hold: encoding them takes as long."""
    array = output.array
    if not array.dtype.hasobject:
        return array.nbytes
    return LARGE_BYTES + 1 if array.size > _MANY_STRINGS else sum(map(len, array.flat))


def _write_output(output: OutputTensor, region: AnyRegion, piece: RegionSlice) -> None:
    data = bytes_of(output.array)
    if len(data) > piece.size_bytes:
        raise internal(
            f"shared memory size specified with the request for output '{output.name}' ({piece.size_bytes} bytes) should be at "
            f"least {len(data)} bytes to hold the results"
        )
    region.write(piece.offset, data)
    output.region = RegionSlice(piece.name, piece.offset, len(data))

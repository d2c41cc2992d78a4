"""Inferences with inputs in a GPU's memory: they wait until these are copied, off the event loop, and go on in their order.

Owns that order, the bound of what is copied, and the handle by which a frontend gives such an inference up meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from naiad.core.region_sink import Completion, RegionSink, RunOnThread
from naiad.errors import InferenceServerError, cancelled, internal, invalid_argument, unavailable
from naiad.memory.client_regions.device_region import DeviceRegion
from naiad.request.call import CallInput, InferCall, RegionSlice
from naiad.request.responder import ResponseSink
from naiad.request.service import InferHandle

# Of all requests that are being answered, together: the copies are ours, unlike what lies in the clients' own memory.
MOST_COPIED_BYTES = 4 << 30

Accept = Callable[[InferCall, ResponseSink], InferHandle]

_log = logging.getLogger("naiad.core")


class DeviceInputs:
    """Copies the inputs of one inference after the other. Loop thread only; the copies run on one thread at a time."""

    def __init__(self, run_on_thread: RunOnThread, most_bytes: int = MOST_COPIED_BYTES) -> None:
        self._run_on_thread = run_on_thread
        self._most_bytes = most_bytes
        self._copied_bytes = 0
        self._waiting: list[WaitingInfer] = []
        self._is_copying = False

    def infer(self, call: InferCall, sink: RegionSink, regions: dict[str, DeviceRegion], accept: Accept) -> InferHandle:
        """Do as `accept` when the inputs of `call` that lie in `regions` are buffers; their pieces have been checked.

        The regions are in use until then. Raises INVALID_ARGUMENT for more bytes than are ever copied, UNAVAILABLE while
        other requests have them.
        """
        size_bytes = sum(item.region.size_bytes for item in call.inputs if item.region is not None)
        self._take(size_bytes)
        waiting = WaitingInfer(call, sink, regions, accept)
        waiting.on_free = lambda: self._give_back(size_bytes)
        self._waiting.append(waiting)
        if not self._is_copying:
            self._start()
        return waiting

    def _take(self, size_bytes: int) -> None:
        if size_bytes > self._most_bytes:
            raise invalid_argument(
                f"inputs of {size_bytes} bytes in CUDA shared memory are too large: at most {self._most_bytes} bytes are copied"
            )
        if self._copied_bytes + size_bytes > self._most_bytes:
            raise unavailable(
                f"{self._copied_bytes} bytes of inputs in CUDA shared memory are in use, {size_bytes} more would exceed "
                f"{self._most_bytes} bytes, the most that may be: try again later"
            )
        self._copied_bytes += size_bytes

    def _give_back(self, size_bytes: int) -> None:
        self._copied_bytes -= size_bytes

    def _start(self) -> None:
        self._is_copying = True
        batch, self._waiting = self._waiting, []

        def copy() -> Completion:
            errors = [waiting.copy() for waiting in batch]
            return lambda: self._end(batch, errors)

        self._run_on_thread(copy)

    def _end(self, batch: list[WaitingInfer], errors: list[InferenceServerError | None]) -> None:
        for waiting, error in zip(batch, errors):
            waiting.go_on(error)
        self._is_copying = False
        if self._waiting:
            self._start()


class WaitingInfer:
    """An inference whose inputs are being copied, later the one that was accepted. See `InferHandle`.

    `on_free` is called once, when the copies are in use no more. All but `copy` is for the loop thread.
    """

    __slots__ = ("_accept", "_call", "_handle", "_is_cancelled", "_regions", "_sink", "on_free")

    def __init__(self, call: InferCall, sink: RegionSink, regions: dict[str, DeviceRegion], accept: Accept) -> None:
        self._call = call
        self._sink = sink
        self._regions = regions
        self._accept = accept
        self._handle: InferHandle | None = None
        self._is_cancelled = False
        self.on_free: Callable[[], None] = _nothing
        for region in regions.values():
            region.hold()

    def cancel(self) -> None:
        """See `InferHandle.cancel`."""
        self._is_cancelled = True
        if self._handle is None:
            self._sink.fail(cancelled())
        else:
            self._handle.cancel()

    def copy(self) -> InferenceServerError | None:
        """Replace the pieces by copies; return what went wrong. Runs on any thread; does nothing for one that was given up."""
        try:
            if not self._is_cancelled:
                self._call.inputs = [self._copied(item) for item in self._call.inputs]
        except InferenceServerError as error:
            return error
        except MemoryError:
            return unavailable("the server has no memory left to copy the inputs from CUDA shared memory: try again later")
        except Exception:
            _log.exception("reading an input from CUDA shared memory failed by a fault of the server")
            return internal("internal error, see the server's log")
        return None

    def go_on(self, error: InferenceServerError | None) -> None:
        """Let the regions go, and accept the call or fail with `error`."""
        for region in self._regions.values():
            region.release()
        self._regions = {}
        if self._is_cancelled:
            self.on_free()
            return
        self._sink.when_free(self.on_free)
        if error is None:
            error = self._accepted()
        if error is not None:
            self._sink.fail(error)

    def _accepted(self) -> InferenceServerError | None:
        """Have the call accepted; return why it isn't."""
        call, accept = self._call, self._accept
        # A long inference need not keep what only its beginning needs.
        del self._call, self._accept
        try:
            self._handle = accept(call, self._sink)
        except InferenceServerError as error:
            return error
        except Exception:
            _log.exception("accepting an inference failed by a fault of the server")
            return internal("internal error, see the server's log")
        if self._is_cancelled:
            self._handle.cancel()
        return None

    def _copied(self, item: CallInput) -> CallInput:
        piece: RegionSlice | None = item.region
        if piece is None:
            return item
        buffer = self._regions[piece.name].read(piece.offset, piece.size_bytes)
        return CallInput(item.name, item.datatype, item.shape, buffer)


def _nothing() -> None:
    """Is to be done when nobody counts the copies."""

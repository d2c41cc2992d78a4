"""Where a model's batches run: on a thread, or in place on the event loop when they are so short that a hand-over costs more.

Owns that decision. A model earns the loop by its own measured runs and loses it by one long one; the decision is a pure
function of what was observed. `TurnBudget` keeps all models together from holding the loop longer than a millisecond a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

SHORT_NS = 100_000
LONG_NS = 1_000_000
TURN_NS = 1_000_000

_WINDOW = 128
# With 128 runs a window, one slow run is still below 1 %.
_SLOW_ALLOWED = 1
# Waiting for the GIL makes a short run look long, sleeping makes every run long: a tenth of short ones tells them apart.
_FEWEST_SHORT = _WINDOW // 10


class PlacementMode(Enum):
    """What the model's config asks for with parameter `naiad_placement`."""

    AUTO = "auto"
    IN_PLACE = "in_place"
    THREAD = "thread"


class Placement:
    """Decides for one model version; sizes are learnt apart, in steps of two. Loop thread only."""

    __slots__ = ("_classes", "in_place_runs", "mode")

    def __init__(self, mode: PlacementMode) -> None:
        self.mode = mode
        self._classes: dict[int, _SizeClass] = {}
        self.in_place_runs = 0

    @property
    def needs_measuring(self) -> bool:
        """Whether runs on a thread have to be reported with `observe_thread`."""
        return self.mode is PlacementMode.AUTO

    def is_in_place(self, size_bytes: int) -> bool:
        """Return whether a batch with `size_bytes` bytes of inputs may run on the event loop."""
        if self.mode is not PlacementMode.AUTO:
            return self.mode is PlacementMode.IN_PLACE
        known = self._classes.get(size_bytes.bit_length())
        return known is not None and known.is_earned

    def observe_thread(self, size_bytes: int, cpu_ns: int, wall_ns: int) -> None:
        """Learn from a run on a thread: the thread's own CPU time, and the time that passed."""
        size_class = size_bytes.bit_length()
        known = self._classes.get(size_class)
        if known is None:
            known = self._classes[size_class] = _SizeClass()
        known.observe_thread(cpu_ns, wall_ns)

    def observe_in_place(self, size_bytes: int, wall_ns: int) -> None:
        """Learn from a run on the loop."""
        self.in_place_runs += 1
        known = self._classes.get(size_bytes.bit_length())
        if known is not None:
            known.observe_in_place(wall_ns)


class _SizeClass:
    """What is known of batches of one size: runs are judged a window at a time, by their 99th percentile."""

    __slots__ = ("_runs", "_short", "_slow", "_window", "is_earned")

    def __init__(self) -> None:
        self.is_earned = False
        self._window = _WINDOW
        self._clear()

    def observe_thread(self, cpu_ns: int, wall_ns: int) -> None:
        if self.is_earned:
            return
        self._count(cpu_ns, wall_ns)
        if self._runs >= self._window:
            self.is_earned = self._slow <= _SLOW_ALLOWED and self._short >= _FEWEST_SHORT
            self._clear()

    def observe_in_place(self, wall_ns: int) -> None:
        self._count(wall_ns, wall_ns)
        is_slow_often = self._slow > _SLOW_ALLOWED
        if wall_ns > LONG_NS or is_slow_often:
            # The next proof has to be longer, so that a model at the edge doesn't swing.
            self.is_earned = False
            self._window = min(self._window * 2, _WINDOW * 1024)
            self._clear()
        elif self._runs >= _WINDOW:
            self._clear()

    def _count(self, judged_ns: int, wall_ns: int) -> None:
        self._runs += 1
        self._slow += judged_ns > SHORT_NS
        self._short += wall_ns <= SHORT_NS

    def _clear(self) -> None:
        self._runs = self._slow = self._short = 0


class TurnBudget:
    """How long in-place work may still hold the loop in this turn, shared by all models of a server."""

    __slots__ = ("_call_soon", "_spent_ns")

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._spent_ns = 0

    @property
    def is_left(self) -> bool:
        """Whether one more short run fits into this turn."""
        return self._spent_ns < TURN_NS - SHORT_NS

    def spend(self, wall_ns: int) -> None:
        """Take `wall_ns` nanoseconds out of this turn's budget."""
        if not self._spent_ns:
            self._call_soon(self._renew)
        self._spent_ns += wall_ns

    def _renew(self) -> None:
        self._spent_ns = 0

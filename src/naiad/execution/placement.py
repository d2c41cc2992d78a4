"""Where a model's batches run: on a thread, or in place on the event loop when they are so short that a hand-over costs more.

Owns that decision. A model earns the loop by its own measured runs and loses it by one long one; the decision is a pure
function of what was observed. `TurnBudget` keeps all models together from holding the loop longer than a millisecond a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

SHORT_NS = 100_000
LONG_NS = 1_000_000
TURN_NS = 1_000_000
RUN_NS = 500_000
MAX_RUN_LENGTH = 16

_WINDOW = 128
# On a virtual machine 2 % of 20 µs runs take over 100 µs by no fault of theirs (measured): the 97th percentile counts.
_SLOW_ALLOWED = 4
# Waiting for the GIL makes a short run look long, sleeping makes every run long: a tenth of short ones tells them apart.
_FEWEST_SHORT = _WINDOW // 10
_LONGEST_WINDOW = _WINDOW * 1024
# Who stayed in place this many windows has earned a fresh start: what ended it was the machine, not the model.
_WINDOWS_OF_TRUST = 8


class PlacementMode(Enum):
    """What the model's config asks for with parameter `naiad_placement`."""

    AUTO = "auto"
    IN_PLACE = "in_place"
    THREAD = "thread"


class Placement:
    """Decides for one model version; sizes are learnt apart, in steps of two. Loop thread only."""

    __slots__ = ("_classes", "_typical_ns", "in_place_runs", "mode")

    def __init__(self, mode: PlacementMode) -> None:
        self.mode = mode
        self._classes: dict[int, _SizeClass] = {}
        self._typical_ns = float(RUN_NS)
        self.in_place_runs = 0

    @property
    def run_length(self) -> int:
        """How many batches are worth one hand-over: half a millisecond of them, 1 for a model that takes longer."""
        if self.mode is PlacementMode.IN_PLACE:
            return MAX_RUN_LENGTH
        return max(1, min(MAX_RUN_LENGTH, int(RUN_NS / max(self._typical_ns, 1.0))))

    def is_in_place(self, size_bytes: int) -> bool:
        """Return whether a batch with `size_bytes` bytes of inputs may run on the event loop."""
        if self.mode is not PlacementMode.AUTO:
            return self.mode is PlacementMode.IN_PLACE
        known = self._classes.get(size_bytes.bit_length())
        return known is not None and known.is_earned

    def observe_thread(self, size_bytes: int, cpu_ns: int, wall_ns: int) -> None:
        """Learn from a run on a thread: what the thread itself computed, and the time that passed."""
        # Down at once and up slowly: a run that waited for the GIL says little, one that was quick says what is possible.
        weight = 0.5 if wall_ns < self._typical_ns else 0.05
        self._typical_ns += (wall_ns - self._typical_ns) * weight
        if self.mode is not PlacementMode.AUTO:
            return
        size_class = size_bytes.bit_length()
        known = self._classes.get(size_class)
        if known is None:
            known = self._classes[size_class] = _SizeClass()
        known.observe_thread(min(cpu_ns, wall_ns), wall_ns)

    def observe_in_place(self, size_bytes: int, wall_ns: int) -> None:
        """Learn from a run on the loop."""
        self.in_place_runs += 1
        known = self._classes.get(size_bytes.bit_length())
        if known is not None:
            known.observe_in_place(wall_ns)


class _SizeClass:
    """What is known of batches of one size: runs are judged a window at a time, by their 97th percentile."""

    __slots__ = ("_runs", "_short", "_slow", "_window", "_windows_in_place", "is_earned")

    def __init__(self) -> None:
        self.is_earned = False
        self._window = _WINDOW
        self._windows_in_place = 0
        self._clear()

    def observe_thread(self, own_ns: int, wall_ns: int) -> None:
        if self.is_earned:
            return
        self._count(own_ns, wall_ns)
        if self._runs >= self._window:
            # A longer window may have as many slow runs in proportion.
            allowed = _SLOW_ALLOWED * self._window // _WINDOW
            self.is_earned = self._slow <= allowed and self._short >= _FEWEST_SHORT
            self._windows_in_place = 0
            self._clear()

    def observe_in_place(self, wall_ns: int) -> None:
        self._count(wall_ns, wall_ns)
        if wall_ns > LONG_NS or self._slow > _SLOW_ALLOWED:
            self._demote()
        elif self._runs >= _WINDOW:
            self._windows_in_place += 1
            self._clear()

    def _demote(self) -> None:
        """Back to a thread; the next proof is longer, so that a model at the edge doesn't swing."""
        self.is_earned = False
        is_trusted = self._windows_in_place >= _WINDOWS_OF_TRUST
        self._window = _WINDOW if is_trusted else min(self._window * 2, _LONGEST_WINDOW)
        self._clear()

    def _count(self, judged_ns: int, wall_ns: int) -> None:
        self._runs += 1
        self._slow += judged_ns > SHORT_NS
        self._short += wall_ns <= SHORT_NS

    def _clear(self) -> None:
        self._runs = self._slow = self._short = 0


class TurnBudget:
    """How long in-place work may still hold the loop in this turn, shared by all models of a server.

    Work that finds nothing left waits here, first come first served, so that no instance's work is passed over turn after turn.
    """

    __slots__ = ("_call_soon", "_deferred", "_is_renewal_due", "_spent_ns")

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._deferred: deque[Callable[[], None]] = deque()
        self._is_renewal_due = False
        self._spent_ns = 0

    @property
    def is_left(self) -> bool:
        """Whether one more short run fits into this turn."""
        return self._spent_ns < TURN_NS - SHORT_NS

    @property
    def is_free(self) -> bool:
        """Whether work that comes now may run now: a run fits, and nobody waits."""
        return not self._deferred and self._spent_ns < TURN_NS - SHORT_NS

    def spend(self, wall_ns: int) -> None:
        """Take `wall_ns` nanoseconds out of this turn's budget."""
        self._spent_ns += wall_ns
        if not self._is_renewal_due:
            self._is_renewal_due = True
            self._call_soon(self._renew)

    def defer(self, work: Callable[[], None]) -> None:
        """Run `work` in a later turn, behind what waits already; it looks at `is_left` again and may defer what remains."""
        self._deferred.append(work)
        self.spend(0)

    def _renew(self) -> None:
        self._spent_ns = 0
        self._is_renewal_due = False
        for _ in range(len(self._deferred)):
            if not self.is_left:
                break
            self._deferred.popleft()()
        if self._deferred:
            self.spend(0)

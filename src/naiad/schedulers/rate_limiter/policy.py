"""Who gets resources next: a pure decision over what is free and who waits.

Owns the counts of resources in use and the order of those who wait. Doesn't own time, instances or batches.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

Resource = tuple[str, int]
"""A resource's name and its device; `GLOBAL` is that of one that all devices share."""

GLOBAL = -2

MOST_PASSES = 16
"""How often others may take resources that one who waits needs, but doesn't wait for. After that it keeps them free."""


class Claim:
    """What one instance needs for a batch. `score` is how often it ran times its priority: the lowest goes first.

    `needs` maps resources to counts. `passes` counts how often others went before it.
    """

    __slots__ = ("is_running", "is_waiting", "needs", "passes", "priority", "score", "ticket")

    def __init__(self, needs: Mapping[Resource, int], priority: int, score: int = 0) -> None:
        self.needs = dict(needs)
        self.priority = max(priority, 1)
        self.score = score
        self.ticket = 0
        self.passes = 0
        self.is_waiting = self.is_running = False

    def __lt__(self, other: Claim) -> bool:
        return (self.score, self.ticket) < (other.score, other.ticket)


class ResourcePolicy:
    """The resources of a server. `capacity` is how many there are of each; it may fall below what is in use for a time.

    Who lacks something stops only those who need the same thing. That alone could starve one who needs two things that are
    never free together, so after `MOST_PASSES` nobody else gets anything that it needs.
    """

    def __init__(self) -> None:
        self.capacity: dict[Resource, int] = {}
        self._used: dict[Resource, int] = {}
        self._waiting: list[Claim] = []
        self._running: list[Claim] = []
        self._last_ticket = 0

    @property
    def waiting(self) -> Iterable[Claim]:
        """Those that wait, in order."""
        return tuple(self._waiting)

    def lacking(self, claim: Claim) -> list[Resource]:
        """Return the resources that aren't free in the number that `claim` needs."""
        return [name for name, count in claim.needs.items() if self._free(name) < count]

    def holders(self, resource: Resource) -> list[Claim]:
        """Return those that run with some of `resource`."""
        return [claim for claim in self._running if claim.needs.get(resource)]

    def lowest_score(self) -> int:
        """Return the lowest score of all that wait or run, 0 without any: where a new instance begins."""
        return min([claim.score for claim in (*self._waiting, *self._running)], default=0)

    def wait(self, claim: Claim) -> None:
        """Let `claim`, which neither waits nor runs, wait for its turn."""
        self._last_ticket += 1
        claim.ticket, claim.passes, claim.is_waiting = self._last_ticket, 0, True
        insort(self._waiting, claim)

    def give_up(self, claim: Claim) -> None:
        """Let `claim` wait no longer."""
        self._waiting.remove(claim)
        claim.is_waiting = False

    def release(self, claim: Claim) -> None:
        """Take back what `claim` ran with."""
        self._running.remove(claim)
        claim.is_running = False
        for name, count in claim.needs.items():
            self._used[name] -= count

    def next(self, *, is_stalled: bool = False) -> Claim | None:
        """Return the next that may run, which has its resources from here on; None when nobody can.

        `is_stalled`: nothing has moved for long, perhaps since someone who runs waits for someone who waits here. Whoever can
        run may, whatever others are kept free for.
        """
        kept: set[Resource] = set()
        passed: list[Claim] = []
        for claim in self._waiting:
            lacking = self.lacking(claim)
            if not lacking and (is_stalled or kept.isdisjoint(claim.needs)):
                for other in passed:
                    other.passes += not other.needs.keys().isdisjoint(claim.needs)
                self._start(claim)
                return claim
            passed.append(claim)
            kept.update(lacking if claim.passes < MOST_PASSES else claim.needs)
        return None

    def _start(self, claim: Claim) -> None:
        self.give_up(claim)
        claim.is_running = True
        claim.score += claim.priority
        self._running.append(claim)
        for name, count in claim.needs.items():
            self._used[name] = self._used.get(name, 0) + count

    def _free(self, resource: Resource) -> int:
        return self.capacity.get(resource, 0) - self._used.get(resource, 0)

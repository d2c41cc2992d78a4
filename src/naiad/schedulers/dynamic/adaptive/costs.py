"""What a run of a model costs by the number of its items, as measured while it serves.

Owns the measurements. Doesn't own what is concluded from them, which is `adaptive.policy`.
"""

from __future__ import annotations

_NEWEST_SHARE = 1 / 16
_RUNS_NEEDED = 3


class _Measured:
    """Runs of about the same size: the means of their sizes and times, of which the newest count most."""

    __slots__ = ("count", "ns", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0.0
        self.ns = 0.0

    def add(self, size: int, ns: int) -> None:
        self.count += 1
        share = max(1 / self.count, _NEWEST_SHARE)
        self.size += (size - self.size) * share
        self.ns += (ns - self.ns) * share


class RunCosts:
    """The measured time of a run by its size. What isn't measured is taken for proportional to the size, which promises nothing
    of larger batches.
    """

    __slots__ = ("_by_magnitude", "_known", "run_count")

    def __init__(self) -> None:
        self._by_magnitude: dict[int, _Measured] = {}
        self._known: list[_Measured] = []
        self.run_count = 0

    def add(self, size: int, ns: int) -> None:
        """Take the measurement of one run of `size` items; the time of this doesn't grow with their number."""
        self.run_count += 1
        magnitude = size.bit_length()
        measured = self._by_magnitude.get(magnitude)
        if measured is None:
            measured = self._by_magnitude[magnitude] = _Measured()
        measured.add(size, ns)
        if measured.count == _RUNS_NEEDED:
            known = [one for _, one in sorted(self._by_magnitude.items()) if one.count >= _RUNS_NEEDED]
            self._known = known

    def is_measured(self, size: int) -> bool:
        """Return whether runs of about `size` items were measured."""
        measured = self._by_magnitude.get(size.bit_length())
        return measured is not None and measured.count >= _RUNS_NEEDED

    def run_ns(self, size: float) -> float:
        """Return the expected time of a run of `size` items, 0 before any is known."""
        known = self._known
        if not known:
            return 0.0
        if len(known) == 1:
            return known[0].ns * size / known[0].size
        index = 1
        while index < len(known) - 1 and known[index].size < size:
            index += 1
        low, high = known[index - 1], known[index]
        slope = max(high.ns - low.ns, 0.0) / (high.size - low.size)
        if size < low.size:
            return max(low.ns - slope * (low.size - size), low.ns * size / low.size)
        return low.ns + slope * (size - low.size)

    def table(self) -> tuple[tuple[float, float], ...]:
        """Return what is measured: pairs of a size in items and the milliseconds of a run, by size."""
        return tuple([(round(one.size, 1), round(one.ns / 1e6, 3)) for one in self._known])

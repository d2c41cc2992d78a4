"""Models that load each other and would wait for ever.

Owns who waits for whom: a model whose load isn't over yet, and the models that its code has asked to be loaded or unloaded.
These wait for the end of what is going on with them; when that waits for the first one in turn, nothing ever ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from naiad.errors import invalid_argument


class LoadWaits:
    """See the module. Loop thread only. `on_wait` is called with the name of each model that begins to wait."""

    def __init__(self) -> None:
        self._waits: defaultdict[str, list[str]] = defaultdict(list)
        self.on_wait: Callable[[str], None] = lambda _model: None

    @contextmanager
    def waiting(self, model: str, other: str) -> Iterator[None]:
        """Let `model`, which is being loaded, wait for a change of `other`. Raises INVALID_ARGUMENT if that would never end."""
        if model == other:
            raise invalid_argument(f"model '{model}' can't load or unload itself while it is being loaded")
        way = self._way(other, model, [])
        if way:
            raise invalid_argument(
                f"model '{model}' can't load or unload '{other}' while it is being loaded itself: that waits for '{model}' "
                f"({' → '.join(way)}), so neither would ever be ready"
            )
        self._waits[model].append(other)
        try:
            self.on_wait(model)
            yield
        finally:
            self._waits[model].remove(other)
            if not self._waits[model]:
                del self._waits[model]

    def _way(self, start: str, end: str, before: list[str]) -> list[str]:
        """Return the models from `start` to `end`, each waiting for the next; [] if there is no such way."""
        names = [*before, start]
        if start == end:
            return names
        for name in self._waits.get(start, ()):
            way = [] if name in names else self._way(name, end, names)
            if way:
                return way
        return []

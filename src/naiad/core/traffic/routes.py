"""The way of one request of a model whose versions share requests: which version answers, which get a copy.

Owns the act for each request, on what is made once for each change of settings or versions. Loop thread only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from naiad.config.traffic import TrafficSettings
from naiad.core.route import Route
from naiad.core.traffic.policy import Split, sequence_point
from naiad.core.traffic.sequences import OpenSequences
from naiad.core.traffic.shadow import ShadowRequests, ShadowResult
from naiad.core.validate import CheckedCall
from naiad.request.call import InferCall

Draw = Callable[[], float]
"""Returns a number, 0 <= number < 1, another each time."""


@dataclass(slots=True, eq=False)
class ModelTraffic:
    """What is kept of a model by its name, whatever is loaded: settings of the API, open sequences, counters.

    `request_counts` has the requests that named no version, by the version that they went to.
    """

    shadow: ShadowRequests
    given: TrafficSettings | None = None
    sequences: OpenSequences = field(default_factory=OpenSequences)
    request_counts: Counter[int] = field(default_factory=Counter)


class SharedRoutes:
    """See `core.route.Traffic`. `routes` has all versions that take requests, `split` shares what names no version among some
    of them; without a split `latest` answers all.
    """

    __slots__ = ("_begin", "_draw", "_latest", "_routes", "_settings", "_split", "_state")

    def __init__(
        self,
        state: ModelTraffic,
        settings: TrafficSettings,
        routes: Mapping[int, Route],
        split: Split | None,
        latest: int,
        draw: Draw,
    ) -> None:
        self._state = state
        self._settings = settings
        self._routes = routes
        self._split = split
        self._latest = latest
        self._begin = (lambda _: latest) if split is None else split.for_sequence
        self._draw = draw

    def choose(self, call: InferCall) -> Route:
        """See `Traffic.choose`."""
        split = self._split
        if call.sequence_id:
            sequences = self._state.sequences
            version = sequences.choose(call.sequence_id, self._begin, self._routes, is_start=call.is_sequence_start)
        elif split is None:
            version = self._latest
        else:
            version = split.at(self._draw())
        return self._routes[version]

    def accepted(self, call: InferCall, checked: CheckedCall, route: Route) -> None:
        """See `Traffic.accepted`. Of a sequence all requests are copied or none. Inputs that their client may change aren't
        copied: it may also take the memory away.
        """
        state, settings, sequence_id = self._state, self._settings, call.sequence_id
        version, shadow = route.model.plan.version, state.shadow
        state.request_counts[version] += 1
        if sequence_id:
            state.sequences.note(sequence_id, version, is_end=call.is_sequence_end)
        for trial, share in settings.shadow.items():
            if trial == version:
                continue
            point = sequence_point(sequence_id, f"shadow {trial}") if sequence_id else self._draw()
            if point >= share:
                continue
            copies_to = self._routes.get(trial)
            if call.is_uncached:
                shadow.count(trial, ShadowResult.SKIPPED)
            elif copies_to is None:
                shadow.count(trial, ShadowResult.REFUSED)
            else:
                shadow.send(call, checked, copies_to, settings.max_shadow_in_flight)

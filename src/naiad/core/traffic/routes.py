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
from naiad.request.call import InferCall
from naiad.request.request import InferRequest

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
    """See `core.route.Traffic`. `routes` are by version: those that share the requests, all in `split`; without a split the one
    that answers all of them. `shadow_routes` are those of the versions with copies that are loaded.
    """

    __slots__ = ("_draw", "_only", "_routes", "_settings", "_shadow_routes", "_split", "_state")

    def __init__(
        self,
        state: ModelTraffic,
        settings: TrafficSettings,
        split: Split | None,
        routes: Mapping[int, Route],
        shadow_routes: Mapping[int, Route],
        draw: Draw,
    ) -> None:
        self._state = state
        self._settings = settings
        self._split = split
        self._routes = routes
        self._only = next(iter(routes))
        self._shadow_routes = shadow_routes
        self._draw = draw

    def choose(self, call: InferCall) -> Route:
        """See `Traffic.choose`."""
        state, split = self._state, self._split
        if split is None:
            version = self._only
        elif call.sequence_id:
            version = state.sequences.choose(
                call.sequence_id, split, is_start=call.is_sequence_start, is_end=call.is_sequence_end
            )
        else:
            version = split.at(self._draw())
        state.request_counts[version] += 1
        return self._routes[version]

    def copy(self, request: InferRequest, route: Route, *, has_regions: bool) -> None:
        """See `Traffic.copy`. Of a sequence all requests are copied or none."""
        settings, shadow, sequence = self._settings, self._state.shadow, request.sequence
        for version, share in settings.shadow.items():
            if version == route.model.plan.version:
                continue
            point = self._draw() if sequence is None else sequence_point(sequence.id, f"shadow {version}")
            if point >= share:
                continue
            copies_to = self._shadow_routes.get(version)
            if has_regions:
                shadow.count(version, ShadowResult.SKIPPED)
            elif copies_to is None:
                shadow.count(version, ShadowResult.REFUSED)
            else:
                shadow.send(request, copies_to, settings.max_shadow_in_flight)

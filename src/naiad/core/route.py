"""`Route`: where an inference that names a model, with or without a version, goes.

Owns what the hot path needs of a model version, made once.
"""

from __future__ import annotations

from typing import Protocol

from naiad.core.validate import CallValidator
from naiad.repository.model import Model
from naiad.request.call import InferCall
from naiad.request.request import InferRequest


class Traffic(Protocol):
    """What makes more of an inference that names no version than its route."""

    def choose(self, call: InferCall) -> Route:
        """Return the route of the version that is to answer `call`."""

    def copy(self, request: InferRequest, route: Route, *, has_regions: bool) -> None:
        """Send copies of `request`, accepted by `route`, to the versions on trial. Never raises, never waits.

        `has_regions` is whether tensors of it are in memory that its client may change.
        """


class Route:
    """A model version with what the hot path needs of it; `traffic` is None but where versions share requests."""

    __slots__ = ("check", "enqueue", "model", "traffic")

    def __init__(self, model: Model, traffic: Traffic | None = None) -> None:
        self.model = model
        self.check = CallValidator(model.plan).check
        self.enqueue = model.enqueue if model.cached is None else model.cached.enqueue
        self.traffic = traffic

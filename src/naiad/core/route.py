"""`Route`: where an inference that names a model, with or without a version, goes.

Owns what the hot path needs of a model version, made once.
"""

from __future__ import annotations

from typing import Protocol

from naiad.core.validate import CallValidator, CheckedCall
from naiad.repository.model import Model
from naiad.request.call import InferCall


class Traffic(Protocol):
    """What makes more of an inference that names no version than its route."""

    def choose(self, call: InferCall) -> Route:
        """Return the route of the version that is to answer `call`; nothing is noted, as it may still be refused."""

    def accepted(self, call: InferCall, checked: CheckedCall, route: Route) -> None:
        """Note that `route` has `checked` and accepted `call`, and send copies to the versions on trial. Never raises, never
        waits.

        The accepted request itself belongs to its scheduler by now.
        """


class Route:
    """A model version with what the hot path needs of it; `traffic` is None but where versions share requests."""

    __slots__ = ("check", "enqueue", "model", "traffic")

    def __init__(self, model: Model, traffic: Traffic | None = None) -> None:
        self.model = model
        self.check = CallValidator(model.plan).check
        self.traffic = traffic
        self.refresh()

    def refresh(self) -> None:
        """Go by what takes the model's requests now, which a change of the model may have changed."""
        model = self.model
        self.enqueue = model.enqueue if model.cached is None else model.cached.enqueue

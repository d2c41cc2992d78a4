"""The seam to the models of an ensemble's steps: found by name, held while a request needs them, asked like by any client.

Owns the protocols only. `core.members` implements them.
"""

from __future__ import annotations

from typing import Protocol

from naiad.config.plan import ModelPlan, StepPlan
from naiad.request.call import InferCall
from naiad.request.request import InferRequest
from naiad.request.responder import ResponseSink
from naiad.request.service import InferHandle


class Member(Protocol):
    """A model version that is held: until `let_go` it takes calls, also when another copy has taken its place meanwhile."""

    @property
    def plan(self) -> ModelPlan:
        """The plan of the version."""

    def infer(self, call: InferCall, sink: ResponseSink) -> InferHandle:
        """See `InferenceService.infer`; goes on while the server drains, since it is for a request in flight."""

    def let_go(self) -> None:
        """Be done with it. Called once."""


class Members(Protocol):
    """All models of the server. Loop thread only."""

    def hold(self, step: StepPlan, request: InferRequest, namespace: str) -> Member:
        """Return the model version that is to run `step` for `request`, of an ensemble in `namespace` ("" without).

        Raises NOT_FOUND or UNAVAILABLE when it isn't ready.
        """

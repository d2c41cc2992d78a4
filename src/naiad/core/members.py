"""The models of the server as the steps of ensembles use them: see `schedulers.ensemble.members`.

Owns that such a call goes the way of every request, and that its model stays until the request is through. Loop thread only.
"""

from __future__ import annotations

from naiad.config.plan import ModelPlan, StepPlan
from naiad.core.route import Route, Traffic
from naiad.core.server import InferenceServer
from naiad.request.call import InferCall
from naiad.request.request import InferRequest
from naiad.request.responder import ResponseSink
from naiad.request.service import InferHandle
from naiad.schedulers.ensemble.members import Member


class CoreMembers:
    """See `Members`. `core` is set by who assembles the server, before any model is loaded."""

    core: InferenceServer

    def hold(self, step: StepPlan, request: InferRequest, namespace: str) -> Member:
        """See `Members.hold`. Where versions share requests, they share these, too."""
        route = self.core.route_from(namespace, step.model_name, step.version)
        traffic = route.traffic
        if traffic is not None:
            call = InferCall(step.model_name)
            if request.sequence is not None:
                sequence = request.sequence
                call.sequence_id, call.is_sequence_start, call.is_sequence_end = sequence.id, sequence.is_start, sequence.is_end
            route = traffic.choose(call)
        return _HeldMember(self.core, route, traffic)


class _HeldMember:
    """See `Member`."""

    __slots__ = ("_core", "_route", "_traffic", "plan")

    def __init__(self, core: InferenceServer, route: Route, traffic: Traffic | None) -> None:
        self._core = core
        self._route = route
        self._traffic = traffic
        self.plan: ModelPlan = route.model.plan
        route.model.holds.take()

    def infer(self, call: InferCall, sink: ResponseSink) -> InferHandle:
        """See `Member.infer`."""
        # Since it is held the model may have left memory, or come back to it.
        self._route.refresh()
        return self._core.infer_at(self._route, self._traffic, call, sink)

    def let_go(self) -> None:
        """See `Member.let_go`."""
        self._route.model.holds.let_go()

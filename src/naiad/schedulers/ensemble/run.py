"""One request's way through an ensemble: calls of the steps' models, their responses, the answers to the client.

Owns the calls until all have ended. What is due is `flow`'s to say. Tensors pass from step to step as the views that they are.
Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from naiad.config.plan import ModelPlan
from naiad.errors import FailureReason, InferenceServerError, internal
from naiad.request.call import CallInput, CallOutput, InferCall, Parameter
from naiad.request.request import InferRequest
from naiad.request.request import Sequence as RequestSequence
from naiad.request.response import InferResponse, OutputTensor, Timing
from naiad.request.service import InferHandle
from naiad.schedulers.ensemble.adaptation import adapted
from naiad.schedulers.ensemble.flow import Firing, Flow
from naiad.schedulers.ensemble.graph import Graph
from naiad.schedulers.ensemble.members import Member
from naiad.schedulers.ensemble.sequences import response_parameters, sequence_after

# A decoupled step is held back while so many calls of its request are open or wait.
_WINDOW_CALLS = 16
_NO_PARAMETERS: Mapping[str, Parameter] = MappingProxyType({})


class _Tensor(NamedTuple):
    """A tensor on its way, with the sequence for who reads it and the parameters of the response that it came in."""

    array: np.ndarray[Any, Any]
    datatype: str
    sequence: RequestSequence | None
    parameters: Mapping[str, Parameter] = _NO_PARAMETERS


class RunOwner(Protocol):
    """Who limits the calls of each step, and is told of the end."""

    def may_call(self, run: EnsembleRun, firing: Firing[_Tensor]) -> bool:
        """Return whether the step may have another call, which counts from then on; if not, `resume` comes later."""

    def call_ended(self, step: int) -> None:
        """A call of a step has ended."""

    def record(self, request: InferRequest, timing: Timing) -> None:
        """Count a request that ends well; `timing` is the sum of its calls'."""

    def forget(self, run: EnsembleRun) -> None:
        """Drop what of the run waits for its place."""

    def run_ended(self, run: EnsembleRun) -> None:
        """Nothing of the run is open any more."""


class EnsembleRun:
    """See the module. `members` are the models of the steps, held by the run until it ends."""

    def __init__(
        self, request: InferRequest, plan: ModelPlan, graph: Graph, members: Sequence[Member], owner: RunOwner
    ) -> None:
        given = {
            name: _Tensor(request.inputs[name], tensor.datatype.name, request.sequence) if name in request.inputs else None
            for name, tensor in plan.inputs_by_name.items()
        }
        self.request = request
        self._plan = plan
        self._flow: Flow[_Tensor] = Flow(graph, request.outputs, given)
        self._members = members
        self._owner = owner
        self._calls: set[_StepCall] = set()
        self._waiting = 0
        self._timing: Timing = (0, 0, 0, 0)
        self._is_given_up = False
        self._is_over = False
        self._is_advancing = False
        self._on_writable: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin the first steps."""
        self.request.on_cancel = lambda _request: self._give_up()
        self._advance()

    def resume(self, firing: Firing[_Tensor]) -> None:
        """Begin the call that had to wait."""
        self._waiting -= 1
        self._call(firing)
        self._advance()

    def fail(self, error: InferenceServerError) -> None:
        """End the request with `error`, and every call that is made for it."""
        self.request.responder.fail(error)
        self._give_up()

    def on_response(self, call: _StepCall, response: InferResponse | None, is_final: bool) -> None:
        """Take a response of a step."""
        if is_final:
            self._calls.discard(call)
        if not self._is_given_up:
            if response is not None:
                if response.timing is not None:
                    queue_ns, input_ns, infer_ns, output_ns = map(add, self._timing, response.timing)
                    self._timing = (queue_ns, input_ns, infer_ns, output_ns)
                self._flow.take(call.firing, _tensors(response, _sequence_of(call.firing, self.request)))
            if is_final:
                self._flow.end(call.firing)
        self._advance()
        if is_final:
            self._after_call(call.firing.step)

    def on_error(self, call: _StepCall, error: InferenceServerError) -> None:
        """Take the error of a step: it is the whole request's."""
        self._calls.discard(call)
        if not self._is_given_up:
            text = f"in ensemble '{self._plan.name}', {error.message}"
            failure = InferenceServerError(error.code, text, FailureReason.OTHER)
            failure.retry_after_s = error.retry_after_s
            self.fail(failure)
        self._check_over()
        self._after_call(call.firing.step)

    def _after_call(self, step: int) -> None:
        """A call has ended: it counts no more, and a decoupled step that is held back may go on."""
        self._owner.call_ended(step)
        if self._on_writable and self._is_writable():
            callbacks, self._on_writable = self._on_writable, []
            for callback in callbacks:
                callback()

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`: a step is as fast as those behind it and the client."""
        if not self._is_writable():
            self._on_writable.append(callback)
            return False
        return self._is_given_up or self.request.responder.when_writable(callback)

    def _is_writable(self) -> bool:
        return self._is_given_up or len(self._calls) + self._waiting < _WINDOW_CALLS

    def _advance(self) -> None:
        """Do what is due. A call may answer before it returns: this loop goes on with it, without recursion."""
        if self._is_advancing:
            return
        self._is_advancing = True
        flow = self._flow
        while not self._is_given_up:
            if flow.answers:
                self._answer(flow.answers.popleft())
            elif flow.is_stuck and not self.request.responder.has_ended:
                self.fail(self._deadlock())
            elif flow.firings:
                self._launch(flow.firings.popleft())
            else:
                break
        self._is_advancing = False
        self._check_over()

    def _launch(self, firing: Firing[_Tensor]) -> None:
        if self._owner.may_call(self, firing):
            self._call(firing)
        else:
            self._waiting += 1

    def _call(self, firing: Firing[_Tensor]) -> None:
        member = self._members[firing.step]
        call = _StepCall(self, firing)
        self._calls.add(call)
        call.begin(member, _infer_call(self.request, member.plan, firing))

    def _answer(self, tensors: dict[str, _Tensor]) -> None:
        plan = self._plan
        parameters: dict[str, Parameter] = {}
        sequence = self.request.sequence
        outputs = []
        for name, tensor in tensors.items():
            output = plan.outputs_by_name[name]
            outputs.append(OutputTensor(name, output.datatype, adapted(tensor.array, output)))
            parameters.update(tensor.parameters)
            if tensor.sequence is not self.request.sequence:
                sequence = tensor.sequence
        response = InferResponse(
            plan.name, str(plan.version), self.request.id, outputs, response_parameters(sequence, parameters)
        )
        is_last = not plan.is_decoupled or not (self._flow.open_count or self._flow.answers or self._flow.is_stuck)
        response.timing = self._timing
        self._send(response, is_last)

    def _send(self, response: InferResponse | None, is_last: bool) -> None:
        if is_last and not self.request.responder.has_ended:
            self._owner.record(self.request, self._timing)
        self.request.responder.send(response, is_last)

    def _check_over(self) -> None:
        if self._is_over or self._is_advancing or self._calls or self._waiting:
            return
        self._is_over = True
        responder = self.request.responder
        if not responder.has_ended and not self._is_given_up:
            # All that could be done is done.
            if self._plan.is_decoupled:
                self._send(None, True)
            else:
                responder.fail(self._deadlock())
        self._is_given_up = True
        self.request.on_cancel = None
        members, self._members = self._members, ()
        for member in members:
            member.let_go()
        self._owner.run_ended(self)

    def _give_up(self) -> None:
        """Let every call end: nobody waits for what comes of them."""
        if self._is_given_up:
            return
        self._is_given_up = True
        self._waiting = 0
        self._owner.forget(self)
        for call in list(self._calls):
            call.cancel()
        self._check_over()

    def _deadlock(self) -> InferenceServerError:
        text = "unexpected deadlock, at least one output is not set while no more ensemble steps can be made"
        return internal(f"in ensemble '{self._plan.name}', {text}")


class _StepCall:
    """One call of a step's model: the sink of its responses."""

    __slots__ = ("_handle", "_is_cancelled", "_is_over", "_run", "firing")

    def __init__(self, run: EnsembleRun, firing: Firing[_Tensor]) -> None:
        self.firing = firing
        self._run = run
        self._handle: InferHandle | None = None
        self._is_cancelled = False
        self._is_over = False

    def begin(self, member: Member, call: InferCall) -> None:
        """Put the call to the model."""
        try:
            handle = member.infer(call, self)
        except InferenceServerError as error:
            self.fail(error)
            return
        if not self._is_over:
            self._handle = handle
            if self._is_cancelled:
                handle.cancel()

    def cancel(self) -> None:
        """Give the call up: it ends at once, or as soon as it has begun."""
        self._is_cancelled = True
        if self._handle is not None:
            self._handle.cancel()

    # See `ResponseSink`.

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        if is_final:
            self._is_over, self._handle = True, None
        self._run.on_response(self, response, is_final)

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self._is_over, self._handle = True, None
        self._run.on_error(self, error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return self._run.when_writable(callback)


def _infer_call(request: InferRequest, plan: ModelPlan, firing: Firing[_Tensor]) -> InferCall:
    """Return the call of a step's model: what the client said of its request holds for it, too."""
    inputs = []
    for name, tensor in firing.inputs.items():
        expected = plan.inputs_by_name.get(name)
        array = tensor.array if expected is None else adapted(tensor.array, expected)
        inputs.append(CallInput(name, tensor.datatype, list(array.shape), array=array))
    call = InferCall(plan.name, str(plan.version), request.id, inputs)
    call.outputs = [CallOutput(name) for name, _ in firing.consumer.writes]
    call.parameters = request.parameters
    call.priority = request.priority
    call.timeout_us = request.timeout_us
    call.client = request.client
    call.deadline_ns = request.deadline_ns
    call.takes_many_responses = call.may_omit_outputs = True
    call.is_uncached = request.is_uncached
    sequence = _sequence_of(firing, request)
    if sequence is not None:
        call.sequence_id, call.is_sequence_start, call.is_sequence_end = sequence.id, sequence.is_start, sequence.is_end
    return call


def _tensors(response: InferResponse, before: RequestSequence | None) -> dict[str, _Tensor]:
    """Return the outputs of a step whose own request belongs to the sequence `before`."""
    sequence = sequence_after(before, response.parameters)
    return {
        output.name: _Tensor(output.array, output.datatype.name, sequence, response.parameters) for output in response.outputs
    }


def _sequence_of(firing: Firing[_Tensor], request: InferRequest) -> RequestSequence | None:
    """Return the sequence of a step's request: the client's, unless a tensor that it reads comes with another."""
    found = request.sequence
    for tensor in firing.inputs.values():
        if tensor.sequence is not request.sequence:
            found = tensor.sequence
    return found

"""The implicit state of sequences: what a model returned with one request goes in with the next one.

Owns a sequence's state tensors and the sink that takes them out of responses. Knows no slots and no instances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from naiad.config.plan import SequencePlan
from naiad.errors import InferenceServerError
from naiad.request.request import InferRequest
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse

Array = np.ndarray[Any, Any]


class StateTensors:
    """The rules of one model version; `initial` are the arrays of a sequence's first request, by input name."""

    __slots__ = ("initial", "input_of", "outputs")

    def __init__(self, plan: SequencePlan) -> None:
        self.initial: Mapping[str, Array] = {state.input.name: state.initial for state in plan.states}
        self.input_of = {state.output.name: state.input.name for state in plan.states}
        self.outputs = tuple(self.input_of)

    def __bool__(self) -> bool:
        return bool(self.outputs)


class SequenceState:
    """The state of one sequence. `arrays` are what the next request gets, by input name."""

    __slots__ = ("_rules", "arrays")

    def __init__(self, rules: StateTensors) -> None:
        self._rules = rules
        self.arrays: Mapping[str, Array] = rules.initial

    def reset(self) -> None:
        """Begin again, as for a first request."""
        self.arrays = self._rules.initial

    def follow(self, request: InferRequest) -> None:
        """Have `request` return the state as well, and take it out of what its client gets."""
        wanted = request.outputs
        request.outputs = (*wanted, *[name for name in self._rules.outputs if name not in wanted])
        request.responder.redirect(lambda sink: _StateSink(sink, frozenset(wanted), self._take))

    def _take(self, response: InferResponse, wanted: frozenset[str]) -> InferResponse:
        arrays = dict(self.arrays)
        for output in response.outputs:
            if output.name in self._rules.input_of:
                # A copy: the array is a view of a batch, or of memory that a worker needs again.
                arrays[self._rules.input_of[output.name]] = output.array.copy()
        self.arrays = arrays
        outputs = [output for output in response.outputs if output.name in wanted]
        return InferResponse(
            response.model_name,
            response.model_version,
            response.id,
            outputs,
            response.parameters,
            response.timing,
            response.kept,
        )


class _StateSink:
    """See `ResponseSink`."""

    __slots__ = ("_sink", "_take", "_wanted")

    def __init__(
        self, sink: ResponseSink, wanted: frozenset[str], take: Callable[[InferResponse, frozenset[str]], InferResponse]
    ) -> None:
        self._sink = sink
        self._wanted = wanted
        self._take = take

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        self._sink.send(None if response is None else self._take(response, self._wanted), is_final)

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`. The state stays what it was."""
        self._sink.fail(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return self._sink.when_writable(callback)

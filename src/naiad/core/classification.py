"""The classification extension: outputs that were asked for as their k best classes.

Owns the step between a model's response and the frontend; the ranking itself is the codec's (`wire.classification`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from naiad.config.plan import ModelPlan
from naiad.errors import InferenceServerError
from naiad.request.responder import ResponseSink
from naiad.request.response import InferResponse, OutputTensor
from naiad.tensor.datatype import BYTES
from naiad.wire.classification import classify


class ClassifyingSink:
    """Passes responses on with the outputs in `class_counts` (k by name, 0 for none) replaced by their classes."""

    __slots__ = ("_class_counts", "_plan", "_sink")

    def __init__(self, sink: ResponseSink, plan: ModelPlan, class_counts: Mapping[str, int]) -> None:
        self._sink = sink
        self._plan = plan
        self._class_counts = class_counts

    def send(self, response: InferResponse | None, is_final: bool) -> None:
        """See `ResponseSink.send`."""
        try:
            if response is not None:
                response.outputs = [self._classified(output) for output in response.outputs]
        except InferenceServerError as error:
            self._sink.fail(error)
            return
        self._sink.send(response, is_final)

    def fail(self, error: InferenceServerError) -> None:
        """See `ResponseSink.fail`."""
        self._sink.fail(error)

    def when_writable(self, callback: Callable[[], None]) -> bool:
        """See `ResponseSink.when_writable`."""
        return self._sink.when_writable(callback)

    def _classified(self, output: OutputTensor) -> OutputTensor:
        count = self._class_counts.get(output.name, 0)
        if not count:
            return output
        labels = self._plan.outputs_by_name[output.name].labels
        return OutputTensor(output.name, BYTES, classify(output, labels, count, self._plan.is_batching))

"""Make the plans of `batch_input` and `batch_output`: tensors that an engine needs beside the inputs of different shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from naiad.config import schema
from naiad.config.compile.tensors import tensor_plan
from naiad.config.plan import BatchInputKind, BatchInputPlan
from naiad.proto import Message


def sees_requests_apart(config: Message) -> bool:
    """Return whether the model gets each request's own tensors, so that nothing has to tell it where a request lies."""
    return bool(config.backend == "python" or config.runtime == "model.py")


def batch_input_plans(config: Message) -> Iterator[BatchInputPlan]:
    """Yield a plan for each tensor that is made of a batch."""
    for made in () if sees_requests_apart(config) else config.batch_input:
        kind = BatchInputKind(schema.enum_name(made, "kind"))
        dims = (-1, -1) if kind is BatchInputKind.ITEM_SHAPE else (-1,)
        for name in made.target_name:
            yield BatchInputPlan(kind, tensor_plan(name, schema.enum_name(made, "data_type"), dims, 0), made.source_input[0])


def scattered_outputs(config: Message) -> Mapping[str, str]:
    """Return the outputs that are cut by the shapes of an input, with that input's name."""
    batch_outputs = () if sees_requests_apart(config) else config.batch_output
    return {name: made.source_input[0] for made in batch_outputs for name in made.target_name}

"""What the server and its models say of themselves: metadata, configuration, statistics.

Owns the JSON form of metadata; configuration and statistics come in theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from naiad.frontends.http.admin.body import json_answer
from naiad.frontends.http.admin.endpoint import Question
from naiad.request.service import TensorMetadata


async def server(question: Question) -> Response:
    """Name, version and extensions."""
    metadata = question.service.server_metadata()
    return json_answer({"name": metadata.name, "version": metadata.version, "extensions": metadata.extensions})


async def model(question: Question) -> Response:
    """A model's versions, inputs and outputs; shapes have a leading -1 when the model batches."""
    metadata = question.service.model_metadata(question.model, question.version)
    return json_answer(
        {
            "name": metadata.name,
            "versions": metadata.versions,
            "platform": metadata.platform,
            "inputs": _tensors(metadata.inputs),
            "outputs": _tensors(metadata.outputs),
        }
    )


async def config(question: Question) -> Response:
    """The completed configuration."""
    return json_answer(dict(question.service.model_config(question.model, question.version)))


async def statistics(question: Question) -> Response:
    """The counters of a model, of one version, or of everything that is ready."""
    return json_answer({"model_stats": await question.service.statistics(question.model, question.version)})


def _tensors(tensors: Iterable[TensorMetadata]) -> list[dict[str, Any]]:
    return [{"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape} for tensor in tensors]

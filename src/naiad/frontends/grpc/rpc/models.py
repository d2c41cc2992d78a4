"""Server and models: liveness and readiness, metadata, configuration, statistics.

Owns the protobuf form of these answers, and how a model's version is written.
"""

from __future__ import annotations

import asyncio

from google.protobuf.json_format import ParseDict

from naiad.config.json_form import from_json
from naiad.errors import Code, InferenceServerError
from naiad.proto import Message, message_class
from naiad.request.service import InferenceService, TensorMetadata
from naiad.wire.proto.version import check_version


def server_live(service: InferenceService, _request: Message) -> Message:
    """Return whether the server runs."""
    return message_class("inference.ServerLiveResponse")(live=service.is_live())


def server_ready(service: InferenceService, _request: Message) -> Message:
    """Return whether it takes inferences."""
    return message_class("inference.ServerReadyResponse")(ready=service.is_ready())


async def model_ready(service: InferenceService, request: Message) -> Message:
    """Return whether that model answers; one that is known and can't serve now isn't ready, an unknown one is NOT_FOUND."""
    try:
        is_ready = await service.is_model_ready(request.name, check_version(request.version))
    except InferenceServerError as error:
        if error.code is not Code.UNAVAILABLE:
            raise
        is_ready = False
    return message_class("inference.ModelReadyResponse")(ready=is_ready)


def server_metadata(service: InferenceService, _request: Message) -> Message:
    """Return name, version and extensions."""
    metadata = service.server_metadata()
    return message_class("inference.ServerMetadataResponse")(
        name=metadata.name, version=metadata.version, extensions=metadata.extensions
    )


def model_metadata(service: InferenceService, request: Message) -> Message:
    """Return a model's versions, inputs and outputs."""
    metadata = service.model_metadata(request.name, check_version(request.version))
    response = message_class("inference.ModelMetadataResponse")(
        name=metadata.name, versions=metadata.versions, platform=metadata.platform
    )
    for field, tensors in ((response.inputs, metadata.inputs), (response.outputs, metadata.outputs)):
        for tensor in tensors:
            _add_tensor(field, tensor)
    return response


def model_config(service: InferenceService, request: Message) -> Message:
    """Return the completed configuration."""
    config = service.model_config(request.name, check_version(request.version))
    response = message_class("inference.ModelConfigResponse")()
    response.config.CopyFrom(from_json(config))
    return response


async def model_statistics(service: InferenceService, request: Message) -> Message:
    """Return the counters of a model, of one version, or of everything that is ready."""
    statistics = await service.statistics(request.name, check_version(request.version))
    response = message_class("inference.ModelStatisticsResponse")()
    for entry in statistics:
        # Half a millisecond each.
        ParseDict(entry, response.model_stats.add())
        await asyncio.sleep(0)
    return response


def _add_tensor(field: Message, tensor: TensorMetadata) -> None:
    field.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)

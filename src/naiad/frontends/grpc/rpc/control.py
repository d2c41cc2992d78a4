"""What changes the server: repository, log settings, trace settings, clients' shared memory.

Owns the protobuf form of these questions and answers. What may be changed is the service's.
"""

from __future__ import annotations

from typing import Any

from naiad.errors import InferenceServerError, invalid_argument, unimplemented
from naiad.frontends.printable import printable
from naiad.proto import Message, message_class
from naiad.request.service import InferenceService

_CHOICE = "parameter_choice"
_FILE_PREFIX = "file:"
_MOST_VERBOSE = 2**32 - 1
_LOG_KINDS = {
    "log_file": "string_param",
    "log_info": "bool_param",
    "log_warning": "bool_param",
    "log_error": "bool_param",
    "log_verbose_level": "uint32_param",
    "log_format": "string_param",
}


async def index(service: InferenceService, request: Message) -> Message:
    """Return every known model version and its state."""
    _refuse_repository(request)
    response = message_class("inference.RepositoryIndexResponse")()
    for entry in await service.repository_index(request.ready):
        response.models.add(
            name=printable(entry.name), version=entry.version, state=entry.state, reason=printable(entry.reason)
        )
    return response


async def load(service: InferenceService, request: Message) -> Message:
    """Load or reload a model; returns when it is ready."""
    _refuse_repository(request)
    parameters = {key: _load_parameter(key, value) for key, value in request.parameters.items()}
    await service.load_model(request.model_name, parameters)
    return message_class("inference.RepositoryModelLoadResponse")()


async def unload(service: InferenceService, request: Message) -> Message:
    """Begin to unload a model."""
    _refuse_repository(request)
    key = "unload_dependents"
    is_dependents = False
    if key in request.parameters:
        is_dependents = _typed(f"parameter '{key}'", request.parameters[key], "bool_param")
    await service.unload_model(request.model_name, is_dependents)
    return message_class("inference.RepositoryModelUnloadResponse")()


def log_settings(service: InferenceService, request: Message) -> Message:
    """Change the settings that are named, and return all."""
    changes = {key: _log_setting(key, value) for key, value in request.settings.items()}
    settings = service.update_log_settings(changes) if changes else service.log_settings()
    response = message_class("inference.LogSettingsResponse")()
    for key, value in settings.items():
        setattr(response.settings[key], _LOG_KINDS[key], _fitting(value))
    return response


def trace_setting(_service: InferenceService, _request: Message) -> Message:
    """Refuse: there is no tracing."""
    raise unimplemented("tracing isn't built yet, there are no trace settings")


def system_status(service: InferenceService, request: Message) -> Message:
    """Return the registered regions of system shared memory, by name."""
    response = message_class("inference.SystemSharedMemoryStatusResponse")()
    for region in service.system_regions(request.name):
        shown = response.regions[region.name]
        shown.name, shown.key, shown.offset, shown.byte_size = region.name, region.key, region.offset, region.byte_size
    return response


def system_register(service: InferenceService, request: Message) -> Message:
    """Register a region of system shared memory."""
    service.register_system_region(request.name, request.key, request.offset, request.byte_size)
    return message_class("inference.SystemSharedMemoryRegisterResponse")()


def system_unregister(service: InferenceService, request: Message) -> Message:
    """Forget a region, or all."""
    service.unregister_system_region(request.name)
    return message_class("inference.SystemSharedMemoryUnregisterResponse")()


def cuda_status(service: InferenceService, request: Message) -> Message:
    """Return the registered regions of GPU memory, by name."""
    response = message_class("inference.CudaSharedMemoryStatusResponse")()
    for region in service.cuda_regions(request.name):
        shown = response.regions[region.name]
        shown.name, shown.device_id, shown.byte_size = region.name, region.device_id, region.byte_size
    return response


async def cuda_register(service: InferenceService, request: Message) -> Message:
    """Register a region of GPU memory; returns when it is open."""
    await service.register_cuda_region(request.name, request.raw_handle, request.device_id, request.byte_size)
    return message_class("inference.CudaSharedMemoryRegisterResponse")()


def cuda_unregister(service: InferenceService, request: Message) -> Message:
    """Forget a region, or all."""
    service.unregister_cuda_region(request.name)
    return message_class("inference.CudaSharedMemoryUnregisterResponse")()


def _fitting(value: Any) -> Any:
    """Return a setting as protobuf can hold it: HTTP may have set a higher level, and a file's name need not be Unicode."""
    if isinstance(value, str):
        return printable(value)
    return min(value, _MOST_VERBOSE)


def _refuse_repository(request: Message) -> None:
    if request.repository_name:
        raise unimplemented(f"'repository_name' ('{request.repository_name}') isn't supported, leave it empty")


def _load_parameter(key: str, value: Message) -> str | bytes:
    if key == "config":
        config: str = _typed(f"load parameter '{key}'", value, "string_param")
        return config
    if key.startswith(_FILE_PREFIX):
        content: bytes = _typed(f"load parameter '{key}'", value, "bytes_param")
        return content
    raise invalid_argument(f"unrecognized load parameter '{key}', allowed are 'config' and 'file:<version>/<path>'")


def _log_setting(key: str, value: Message) -> Any:
    kind = _LOG_KINDS.get(key)
    if kind is None:
        raise invalid_argument(f"unknown log setting '{key}', allowed are {', '.join(_LOG_KINDS)}")
    return _typed(f"log setting '{key}'", value, kind)


def _typed(what: str, value: Message, wanted: str) -> Any:
    kind = value.WhichOneof(_CHOICE)
    if kind != wanted:
        raise _wrong_kind(what, kind, wanted)
    return getattr(value, wanted)


def _wrong_kind(what: str, kind: str | None, wanted: str) -> InferenceServerError:
    return invalid_argument(f"{what} has invalid type {kind or 'none'}, it must be {wanted}")

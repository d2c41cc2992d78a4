"""Every RPC but inference: name, group, request message, answer.

Owns this table. The names are the protocol's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from naiad.frontends.grpc.call import RpcMethod
from naiad.frontends.grpc.rpc import control, models
from naiad.frontends.grpc.rpc.health import HealthBoard
from naiad.frontends.grpc.rpc.reflection import V1, V1ALPHA, ReflectionAnswers, ReflectionRpc
from naiad.frontends.grpc.rpc.unary import UnaryMethod, UnaryRpc
from naiad.proto import DescriptorIndex, descriptor_set
from naiad.request.service import InferenceService

INFERENCE_SERVICE = "inference.GRPCInferenceService"
HEALTH_SERVICE = "grpc.health.v1.Health"

_METHODS = (
    UnaryMethod("ServerLive", "health", "inference.ServerLiveRequest", models.server_live),
    UnaryMethod("ServerReady", "health", "inference.ServerReadyRequest", models.server_ready),
    UnaryMethod("ModelReady", "health", "inference.ModelReadyRequest", models.model_ready),
    UnaryMethod("ServerMetadata", "metadata", "inference.ServerMetadataRequest", models.server_metadata),
    UnaryMethod("ModelMetadata", "metadata", "inference.ModelMetadataRequest", models.model_metadata),
    UnaryMethod("ModelConfig", "model-config", "inference.ModelConfigRequest", models.model_config),
    UnaryMethod("ModelStatistics", "statistics", "inference.ModelStatisticsRequest", models.model_statistics),
    UnaryMethod("RepositoryIndex", "model-repository", "inference.RepositoryIndexRequest", control.index),
    UnaryMethod("RepositoryModelLoad", "model-repository", "inference.RepositoryModelLoadRequest", control.load),
    UnaryMethod("RepositoryModelUnload", "model-repository", "inference.RepositoryModelUnloadRequest", control.unload),
    UnaryMethod("LogSettings", "logging", "inference.LogSettingsRequest", control.log_settings),
    UnaryMethod("TraceSetting", "trace", "inference.TraceSettingRequest", control.trace_setting),
    UnaryMethod(
        "SystemSharedMemoryStatus", "shared-memory", "inference.SystemSharedMemoryStatusRequest", control.system_status
    ),
    UnaryMethod(
        "SystemSharedMemoryRegister", "shared-memory", "inference.SystemSharedMemoryRegisterRequest", control.system_register
    ),
    UnaryMethod(
        "SystemSharedMemoryUnregister",
        "shared-memory",
        "inference.SystemSharedMemoryUnregisterRequest",
        control.system_unregister,
    ),
    UnaryMethod("CudaSharedMemoryStatus", "shared-memory", "inference.CudaSharedMemoryStatusRequest", control.cuda_status),
    UnaryMethod(
        "CudaSharedMemoryRegister", "shared-memory", "inference.CudaSharedMemoryRegisterRequest", control.cuda_register
    ),
    UnaryMethod(
        "CudaSharedMemoryUnregister", "shared-memory", "inference.CudaSharedMemoryUnregisterRequest", control.cuda_unregister
    ),
)
REFLECTION_SERVICES = {package: f"{package}.ServerReflection" for package in (V1, V1ALPHA)}


def unary_methods(service: InferenceService) -> list[RpcMethod]:
    """Return the unary RPCs of the inference service, answered by `service`."""
    return [_unary(INFERENCE_SERVICE, method, service) for method in _METHODS]


def health_methods(service: InferenceService, call_soon: Callable[..., object]) -> list[RpcMethod]:
    """Return the RPCs of the health service. `call_soon` is the loop's."""
    board = HealthBoard(service, (INFERENCE_SERVICE, HEALTH_SERVICE), call_soon)
    check = UnaryMethod("Check", "health", "grpc.health.v1.HealthCheckRequest", board.check)
    watch = RpcMethod(f"/{HEALTH_SERVICE}/Watch".encode(), "health", board.watch, max_unread_bytes=1, ends_at_drain=True)
    return [_unary(HEALTH_SERVICE, check, service), watch]


def reflection_methods(call_soon: Callable[..., object]) -> list[RpcMethod]:
    """Return the RPCs of server reflection. No group of those that can be restricted is theirs: they show what is public."""
    index = DescriptorIndex(descriptor_set())
    return [
        RpcMethod(
            f"/{name}/ServerReflectionInfo".encode(),
            "reflection",
            partial(ReflectionRpc, ReflectionAnswers(index, package), call_soon),
        )
        for package, name in REFLECTION_SERVICES.items()
    ]


def _unary(service_name: str, method: UnaryMethod, service: InferenceService) -> RpcMethod:
    return RpcMethod(f"/{service_name}/{method.name}".encode(), method.category, partial(UnaryRpc, method, service))

"""Every unary RPC but inference: name, group, request message, answer.

Owns this table. The names are the protocol's.
"""

from __future__ import annotations

from functools import partial

from naiad.frontends.grpc.call import RpcMethod
from naiad.frontends.grpc.rpc import control, models
from naiad.frontends.grpc.rpc.unary import UnaryMethod, UnaryRpc
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
_HEALTH_CHECK = UnaryMethod("Check", "health", "grpc.health.v1.HealthCheckRequest", models.health)


def methods(service: InferenceService) -> tuple[RpcMethod, ...]:
    """Return the RPCs, answered by `service`."""
    named = [(INFERENCE_SERVICE, method) for method in _METHODS]
    named.append((HEALTH_SERVICE, _HEALTH_CHECK))
    return tuple(
        RpcMethod(f"/{name}/{method.name}".encode(), method.category, partial(UnaryRpc, method, service))
        for name, method in named
    )

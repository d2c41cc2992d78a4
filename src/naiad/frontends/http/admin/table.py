"""The route table: every path of the protocol, its restricted API, its methods.

Owns the one list that routing and the OpenAPI document are made from. Its order counts: `/v2/models/stats` is before the
models, so no model can be asked for by the name `stats`.
"""

from __future__ import annotations

from naiad.frontends.http.admin import health, metadata, refused, repository, settings, shared_memory
from naiad.frontends.http.admin.endpoint import JSON, Content, Endpoint, Operation

_MODEL = "/v2/models/{model}[/versions/{version}]"
_BINARY = "application/octet-stream"
_EVENTS = "text/event-stream"


def endpoints() -> tuple[Endpoint, ...]:
    """Return the whole table."""
    return (*_health(), *_metadata(), *_inference(), *_repository(), *_settings(), *_shared_memory())


def _health() -> list[Endpoint]:
    return [
        Endpoint("/v2/health/live", "health", {"GET": Operation(health.live, "Whether the server lives")}),
        Endpoint("/v2/health/ready", "health", {"GET": Operation(health.ready, "Whether the server should get requests")}),
        Endpoint(f"{_MODEL}/ready", "health", {"GET": Operation(health.model_ready, "Whether a model answers")}),
    ]


def _metadata() -> list[Endpoint]:
    all_statistics = Operation(metadata.statistics, "Statistics of all ready models", Content("Statistics"))
    statistics = Operation(metadata.statistics, "Statistics of a model", Content("Statistics"))
    config = Operation(metadata.config, "The completed configuration of a model", Content("ModelConfig"))
    model = Operation(metadata.model, "Versions, inputs and outputs of a model", Content("ModelMetadata"))
    server = Operation(metadata.server, "Name, version and extensions of the server", Content("ServerMetadata"))
    return [
        Endpoint("/v2", "metadata", {"GET": server}),
        Endpoint("/v2/models/stats", "statistics", {"GET": all_statistics}),
        Endpoint(_MODEL, "metadata", {"GET": model}),
        Endpoint(f"{_MODEL}/config", "model-config", {"GET": config}),
        Endpoint(f"{_MODEL}/stats", "statistics", {"GET": statistics}),
    ]


def _inference() -> list[Endpoint]:
    """Return the hot routes: the connection answers them, the table knows their methods and how they look."""
    infer = Operation(
        refused.inference,
        "Run an inference",
        Content("InferResponse", (JSON, _BINARY)),
        Content("InferRequest", (JSON, _BINARY)),
    )
    generate = Operation(
        refused.inference, "One JSON object in, one out", Content("GenerateResponse"), Content("GenerateRequest")
    )
    generate_stream = Operation(
        refused.inference,
        "One JSON object in, one server-sent event for each response",
        Content("GenerateResponse", (_EVENTS,)),
        Content("GenerateRequest"),
    )
    return [
        Endpoint(f"{_MODEL}/infer", "inference", {"POST": infer}),
        Endpoint(f"{_MODEL}/generate", "inference", {"POST": generate}),
        Endpoint(f"{_MODEL}/generate_stream", "inference", {"POST": generate_stream}),
    ]


def _repository() -> list[Endpoint]:
    prefix, api = "/v2/repository[/{repository}]", "model-repository"
    index = Operation(
        repository.index, "Every known model and its state", Content("Index"), Content("IndexRequest", is_optional=True)
    )
    load = Operation(repository.load, "Load or reload a model", request=Content("LoadRequest", is_optional=True))
    unload = Operation(repository.unload, "Unload a model", request=Content("UnloadRequest", is_optional=True))
    return [
        Endpoint(f"{prefix}/index", api, {"POST": index}),
        Endpoint(f"{prefix}/models/{{model}}/load", api, {"POST": load}),
        Endpoint(f"{prefix}/models/{{model}}/unload", api, {"POST": unload}),
        _traffic(api),
    ]


def _traffic(api: str) -> Endpoint:
    answer = Content("Traffic")
    show = Operation(settings.show_traffic, "How versions share the requests that name none", answer)
    change = Operation(settings.change_traffic, "Change how versions share requests", answer, Content("TrafficSettings"))
    reset = Operation(settings.reset_traffic, "Let the configuration say how versions share requests", answer)
    return Endpoint("/v2/models/{model}/traffic", api, {"GET": show, "POST": change, "DELETE": reset})


def _settings() -> list[Endpoint]:
    show = Operation(settings.show_logs, "The log settings", Content("LogSettings"))
    change = Operation(settings.change_logs, "Change log settings", Content("LogSettings"), Content("LogSettings"))
    show_trace = Operation(refused.trace, "The trace settings", is_unbuilt=True)
    change_trace = Operation(refused.trace, "Change trace settings", is_unbuilt=True)
    return [
        Endpoint("/v2/logging", "logging", {"GET": show, "POST": change}),
        Endpoint("/v2/trace/setting", "trace", {"GET": show_trace, "POST": change_trace}),
        Endpoint("/v2/models/{model}/trace/setting", "trace", {"GET": show_trace, "POST": change_trace}),
    ]


def _shared_memory() -> list[Endpoint]:
    return [
        *_shared_memory_kind(
            "/v2/systemsharedmemory",
            Operation(shared_memory.system_status, "Registered regions", Content("SystemRegions")),
            Operation(shared_memory.register_system, "Register a region", request=Content("SystemRegistration")),
            Operation(shared_memory.unregister_system, "Unregister a region or all"),
        ),
        *_shared_memory_kind(
            "/v2/cudasharedmemory",
            Operation(shared_memory.cuda_status, "Registered regions of GPUs", Content("CudaRegions")),
            Operation(shared_memory.register_cuda, "Register memory of a GPU", request=Content("CudaRegistration")),
            Operation(shared_memory.unregister_cuda, "Unregister a region of a GPU or all"),
        ),
    ]


def _shared_memory_kind(prefix: str, status: Operation, register: Operation, unregister: Operation) -> list[Endpoint]:
    api = "shared-memory"
    return [
        Endpoint(f"{prefix}[/region/{{region}}]/status", api, {"GET": status}),
        Endpoint(f"{prefix}/region/{{region}}/register", api, {"POST": register}),
        Endpoint(f"{prefix}[/region/{{region}}]/unregister", api, {"POST": unregister}),
    ]

"""`ServerOptions`: everything an operator can set on the command line, and the flag that sets it, in one table.

Owns names, defaults, ranges and help. Doesn't own the reading of a command line (`parse`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType

from naiad.config.options.access_options import AccessOptions
from naiad.config.options.composite import (
    BackendSetting,
    ComputeCapability,
    HostPolicySetting,
    MetricsConfig,
    MetricsSetting,
    Origin,
    RestrictedApis,
    RestrictedGroup,
    backend_settings,
    metrics_config,
    restricted_groups,
)
from naiad.config.options.flag import Category, Flag, option
from naiad.config.options.grpc_options import GrpcServerOptions
from naiad.config.options.kinds import Bool, Choice, Float, Int, LocalPath, Text
from naiad.config.options.repository_options import RepositoryOptions
from naiad.config.options.scheduling_options import SchedulingOptions
from naiad.config.options.tls_options import TlsOptions
from naiad.devices.host_policy import HostPolicy, join_settings
from naiad.devices.inventory import Capability

_SERVER, _HTTP = Category.SERVER, Category.HTTP
_LOGGING, _METRICS, _BACKENDS, _PYTHON = Category.LOGGING, Category.METRICS, Category.BACKENDS, Category.PYTHON
_DEVICES = Category.DEVICES
_SECONDS = Float(minimum=0.1)
_PORT = Int(0, 65535)


@dataclass(frozen=True, slots=True)
class ServerOptions(GrpcServerOptions, TlsOptions, AccessOptions, RepositoryOptions, SchedulingOptions):
    """The options of one server, one field a flag: `--http-port` is `http_port`.

    `parse_options` makes it of a command line and checks it; a caller that makes it itself keeps to the ranges of the table.
    Two are no flags: `functions`, each a module:function to be served, and `notes`, what the operator should know about flags
    that were accepted and change nothing.
    """

    id: str = option(Flag("id", _SERVER, Text(is_empty_allowed=False), "triton", "The server's name in its metadata."))
    exit_timeout_secs: int = option(
        Flag(
            "exit-timeout-secs",
            _SERVER,
            Int(minimum=0),
            30,
            "How long a shutdown waits for requests in flight before it ends them and exits with code 1.",
            unit="seconds",
        )
    )
    shutdown_delay_secs: int = option(
        Flag(
            "shutdown-delay-secs",
            _SERVER,
            Int(minimum=0),
            0,
            "How long the server goes on taking requests after SIGTERM, with readiness already at 503, before it starts to "
            "drain: time for load balancers that lag.",
            unit="seconds",
            is_ours=True,
        )
    )
    strict_readiness: bool = option(
        Flag("strict-readiness", _SERVER, Bool(), True, "The server is ready only when all its models are.")
    )
    allow_client_shm: bool = option(
        Flag(
            "allow-client-shm",
            _SERVER,
            Bool(),
            False,
            "Let clients register shared memory by its name, for tensors in it. Whoever reaches the server may name any shared "
            "memory object that the server's user can open.",
        )
    )

    one_port: bool = option(
        Flag(
            "one-port",
            _SERVER,
            Bool(),
            False,
            "Serve gRPC on HTTP's address and port; what a client speaks is told by its first bytes.",
            is_ours=True,
        )
    )

    allow_http: bool = option(Flag("allow-http", _HTTP, Bool(), True, "Serve the HTTP endpoints."))
    http_address: str = option(
        Flag(
            "http-address",
            _HTTP,
            Text(is_empty_allowed=False, metavar="ADDRESS"),
            "127.0.0.1",
            "The address to listen on; 0.0.0.0 is every network of the machine (Triton's default), unix:/path is a Unix domain "
            "socket.",
        )
    )
    http_port: int = option(Flag("http-port", _HTTP, _PORT, 8000, "The port to listen on; 0 takes a free one."))
    reuse_http_port: bool = option(
        Flag("reuse-http-port", _HTTP, Bool(), False, "Let several servers listen on the same port (SO_REUSEPORT).")
    )
    http_header_forward_pattern: str = option(
        Flag(
            "http-header-forward-pattern",
            _HTTP,
            Text(metavar="REGEX"),
            "",
            "An RE2 expression: request headers whose names match become parameters of the inference request.",
            default_text="none",
        )
    )
    http_max_input_size: int = option(
        Flag(
            "http-max-input-size",
            _HTTP,
            Int(minimum=1),
            64 << 20,
            "The largest JSON that a request may carry, and what a compressed body may unpack to.",
            unit="bytes",
        )
    )
    http_restricted_api: tuple[RestrictedGroup, ...] = option(
        Flag(
            "http-restricted-api",
            _HTTP,
            RestrictedApis(),
            (),
            "Answer these APIs only to requests that carry the header with the value, e.g. "
            "model-repository,logging:admin-key=secret. APIs: health, metadata, inference, shared-memory, model-config, "
            "model-repository, statistics, trace, logging.",
            default_text="none",
            is_repeatable=True,
            collect=restricted_groups,
        )
    )
    http_cors_origin: tuple[str, ...] = option(
        Flag(
            "http-cors-origin",
            _HTTP,
            Origin(),
            (),
            "Let web pages of this origin call the server (CORS), e.g. https://app.example; * is every origin.",
            default_text="none",
            is_repeatable=True,
            is_ours=True,
            collect=lambda origins: tuple(dict.fromkeys(origins)),
        )
    )
    http_header_timeout_secs: float = option(
        Flag(
            "http-header-timeout-secs",
            _HTTP,
            _SECONDS,
            10.0,
            "How long a client may take to send the head of a request.",
            unit="seconds",
            is_ours=True,
        )
    )
    http_body_timeout_secs: float = option(
        Flag(
            "http-body-timeout-secs",
            _HTTP,
            _SECONDS,
            60.0,
            "How long the body of a request may stand still before it is given up.",
            unit="seconds",
            is_ours=True,
        )
    )
    http_keep_alive_timeout_secs: float = option(
        Flag(
            "http-keep-alive-timeout-secs",
            _HTTP,
            _SECONDS,
            75.0,
            "How long an idle connection stays open for its next request.",
            unit="seconds",
            is_ours=True,
        )
    )
    http_max_connections: int = option(
        Flag(
            "http-max-connections",
            _HTTP,
            Int(minimum=1),
            4096,
            "How many connections may be open at once; further ones get 503.",
            is_ours=True,
        )
    )

    log_verbose: int = option(Flag("log-verbose", _LOGGING, Int(minimum=0), 0, "Level of verbose messages; 0 is none."))
    log_info: bool = option(Flag("log-info", _LOGGING, Bool(), True, "Log information."))
    log_warning: bool = option(Flag("log-warning", _LOGGING, Bool(), True, "Log warnings."))
    log_error: bool = option(Flag("log-error", _LOGGING, Bool(), True, "Log errors."))
    log_format: str = option(Flag("log-format", _LOGGING, Choice(("default", "ISO8601")), "default", "How log lines begin."))
    log_file: str = option(
        Flag(
            "log-file",
            _LOGGING,
            Text(metavar="FILE"),
            "",
            "A file that log lines are appended to instead of being written to stderr.",
            default_text="stderr",
        )
    )

    allow_metrics: bool = option(Flag("allow-metrics", _METRICS, Bool(), True, "Serve /metrics on a port of its own."))
    allow_cpu_metrics: bool = option(
        Flag("allow-cpu-metrics", _METRICS, Bool(), True, "Show use of CPU and memory among the metrics.")
    )
    allow_gpu_metrics: bool = option(
        Flag("allow-gpu-metrics", _METRICS, Bool(), True, "Show the use of GPUs among the metrics, where there are GPUs.")
    )
    metrics_address: str = option(
        Flag(
            "metrics-address",
            _METRICS,
            Text(metavar="ADDRESS"),
            "127.0.0.1",
            "The address to serve /metrics on.",
            default_text="as --http-address",
        )
    )
    metrics_port: int = option(
        Flag("metrics-port", _METRICS, _PORT, 8002, "The port to serve /metrics on; 0 takes a free one.")
    )
    metrics_interval_ms: int = option(
        Flag(
            "metrics-interval-ms",
            _METRICS,
            Int(minimum=1),
            2000,
            "The shortest time between two readings of CPU, memory and GPUs.",
            unit="milliseconds",
        )
    )
    metrics_config: MetricsConfig = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "metrics-config",
            _METRICS,
            MetricsSetting(),
            MetricsConfig(),
            "Which families exist: counter_latencies=false leaves out the latency counters.",
            default_text="counter_latencies=true",
            is_repeatable=True,
            collect=metrics_config,
        )
    )

    backend_config: Mapping[str, Mapping[str, str]] = option(
        Flag(
            "backend-config",
            _BACKENDS,
            BackendSetting(),
            MappingProxyType({}),
            "A setting of one backend (onnxruntime,intra_op_thread_count=4) or of all (default-max-batch-size=8).",
            default_text="none",
            is_repeatable=True,
            collect=backend_settings,
        )
    )
    backend_directory: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "backend-directory",
            _BACKENDS,
            LocalPath(),
            None,
            'A folder of Python-based backends: models with backend: "x" run the model.py in its folder x.',
            default_text="none",
        )
    )
    in_place: bool = option(
        Flag(
            "in-place",
            _BACKENDS,
            Bool(),
            True,
            "Run models that have proved to take microseconds on the event loop, where handing them to a thread would cost "
            "more than they do.",
            is_ours=True,
        )
    )
    thread_count: int = option(
        Flag(
            "thread-count",
            _BACKENDS,
            Int(minimum=1, maximum=1024),
            min(32, 4 * (os.cpu_count() or 1)),
            "How many threads there are at most for batches to run in.",
            default_text="4 per CPU, at most 32",
            is_ours=True,
        )
    )
    host_policy: tuple[HostPolicy, ...] = option(
        Flag(
            "host-policy",
            _DEVICES,
            HostPolicySetting(),
            (),
            "Bind the instances of a host policy to CPUs: gpu_0,numa-node=1 or cpu,cpu-cores=0-3,8. An instance group names "
            "its policy; without that it is cpu, model or gpu_<id>. With both settings the cores count. Memory isn't bound.",
            default_text="none",
            is_repeatable=True,
            collect=join_settings,
        )
    )
    min_supported_compute_capability: Capability = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "min-supported-compute-capability",
            _DEVICES,
            ComputeCapability(),
            (6, 0),
            "The least CUDA compute capability of the GPUs that models are put on.",
            default_text="6.0",
        )
    )
    allow_model_requirements: bool = option(
        Flag(
            "allow-model-requirements",
            _PYTHON,
            Bool(),
            False,
            "Install what a model's requirements.txt lists, once, into an environment of its own. pip runs code of these "
            "packages with the server's rights.",
            is_ours=True,
        )
    )
    environment_cache_directory: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "environment-cache-directory",
            _PYTHON,
            LocalPath(),
            None,
            "Where the server keeps the environments that it unpacks or makes for Python models. Whoever can write there can "
            "run code in the models' processes.",
            default_text="$XDG_CACHE_HOME/naiad/environments",
            is_ours=True,
        )
    )
    worker_start_timeout_secs: float = option(
        Flag(
            "worker-start-timeout-secs",
            _PYTHON,
            _SECONDS,
            30.0,
            "How long the interpreter of a worker process may take to start, before it imports anything of the model.",
            unit="seconds",
            is_ours=True,
        )
    )
    worker_load_timeout_secs: float = option(
        Flag(
            "worker-load-timeout-secs",
            _PYTHON,
            Float(minimum=0),
            0.0,
            "How long the import of a model, its auto_complete_config and its initialize may take, each; 0 is without a limit.",
            unit="seconds",
            is_ours=True,
        )
    )
    worker_stop_timeout_secs: float = option(
        Flag(
            "worker-stop-timeout-secs",
            _PYTHON,
            Float(minimum=0),
            30.0,
            "How long a model's finalize and the end of its process may take before the process is killed.",
            unit="seconds",
            is_ours=True,
        )
    )
    worker_restart_delay_secs: float = option(
        Flag(
            "worker-restart-delay-secs",
            _PYTHON,
            Float(minimum=0.001),
            0.1,
            "How long after a worker's death the next one starts; each further death before a good batch doubles it.",
            unit="seconds",
            is_ours=True,
        )
    )
    worker_restart_max_delay_secs: float = option(
        Flag(
            "worker-restart-max-delay-secs",
            _PYTHON,
            Float(minimum=0.001),
            30.0,
            "The longest delay before a worker starts again.",
            unit="seconds",
            is_ours=True,
        )
    )
    worker_arena_limit_mb: int = option(
        Flag(
            "worker-arena-limit-mb",
            _PYTHON,
            Int(minimum=1, maximum=1 << 20),
            4096,
            "How much shared memory the tensors on their way to one worker may take, and as much those on their way back.",
            unit="MiB",
            is_ours=True,
        )
    )
    functions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def with_metrics_beside_http(options: ServerOptions) -> ServerOptions:
    """Return the options with /metrics at HTTP's address, unless that is a Unix socket, which only one service can have."""
    if options.http_address.startswith("unix:"):
        return options
    return replace(options, metrics_address=options.http_address)


def flag_table() -> tuple[Flag, ...]:
    """Return every flag, by category and within it in the order of the fields of `ServerOptions`."""
    flags = [field.metadata["flag"] for field in fields(ServerOptions) if "flag" in field.metadata]
    order = list(Category)
    return tuple(sorted(flags, key=lambda flag: order.index(flag.category)))

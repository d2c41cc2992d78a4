"""The flag table agrees with the options that it sets and with the flags that don't exist yet."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest

from naiad.config.options import Category, Flag, ServerOptions, flag_table
from naiad.config.options.unbuilt import unbuilt_flags

FLAGS = {flag.name: flag for flag in flag_table()}

# Every flag of tritonserver 25.x but --help: each must be either built or refused by name.
TRITON_FLAGS = (
    "id",
    "exit-timeout-secs",
    "model-repository",
    "model-store",
    "exit-on-error",
    "disable-auto-complete-config",
    "strict-readiness",
    "model-control-mode",
    "repository-poll-secs",
    "load-model",
    "model-config-name",
    "model-load-thread-count",
    "model-load-retry-count",
    "model-namespacing",
    "enable-peer-access",
    "allow-http",
    "http-address",
    "http-port",
    "reuse-http-port",
    "http-header-forward-pattern",
    "http-thread-count",
    "http-max-input-size",
    "http-restricted-api",
    "allow-grpc",
    "grpc-address",
    "grpc-port",
    "reuse-grpc-port",
    "grpc-header-forward-pattern",
    "grpc-infer-thread-count",
    "grpc-infer-allocation-pool-size",
    "grpc-max-response-pool-size",
    "grpc-use-ssl",
    "grpc-use-ssl-mutual",
    "grpc-server-cert",
    "grpc-server-key",
    "grpc-root-cert",
    "grpc-infer-response-compression-level",
    "grpc-keepalive-time",
    "grpc-keepalive-timeout",
    "grpc-keepalive-permit-without-calls",
    "grpc-http2-max-pings-without-data",
    "grpc-http2-min-recv-ping-interval-without-data",
    "grpc-http2-max-ping-strikes",
    "grpc-max-connection-age",
    "grpc-max-connection-age-grace",
    "grpc-restricted-protocol",
    "log-verbose",
    "log-info",
    "log-warning",
    "log-error",
    "log-format",
    "log-file",
    "allow-metrics",
    "allow-gpu-metrics",
    "allow-cpu-metrics",
    "metrics-address",
    "metrics-port",
    "metrics-interval-ms",
    "metrics-config",
    "trace-config",
    "trace-file",
    "trace-level",
    "trace-rate",
    "trace-count",
    "trace-log-frequency",
    "cache-config",
    "cache-directory",
    "response-cache-byte-size",
    "rate-limit",
    "rate-limit-resource",
    "pinned-memory-pool-byte-size",
    "cuda-memory-pool-byte-size",
    "cuda-virtual-address-size",
    "min-supported-compute-capability",
    "buffer-manager-thread-count",
    "host-policy",
    "model-load-gpu-limit",
    "allow-client-shm",
    "backend-directory",
    "backend-config",
    "repoagent-directory",
    "strict-model-config",
    "allow-sagemaker",
    "sagemaker-port",
    "sagemaker-safe-port-range",
    "sagemaker-thread-count",
    "allow-vertex-ai",
    "vertex-ai-port",
    "vertex-ai-thread-count",
    "vertex-ai-default-model",
)


@pytest.mark.parametrize("name", TRITON_FLAGS)
def test_each_flag_of_triton_is_either_built_or_refused_by_name(name: str) -> None:
    built = {alias for flag in FLAGS.values() for alias in (flag.name, *flag.aliases)}
    assert (name in built) != (name in unbuilt_flags())


def test_a_flag_that_triton_lacks_is_marked_as_ours() -> None:
    assert {name for name in FLAGS if name not in TRITON_FLAGS} == {flag.name for flag in FLAGS.values() if flag.is_ours}


def test_each_option_is_the_field_of_its_flag() -> None:
    flags = {field.name: field.metadata["flag"] for field in fields(ServerOptions) if field.name not in ("functions", "notes")}
    assert [name for category in Category for name, flag in flags.items() if flag.category is category] == [
        flag.field_name for flag in flag_table()
    ]


TRITON_DEFAULTS = {
    "id": "triton",
    "exit_timeout_secs": 30,
    "exit_on_error": True,
    "strict_readiness": True,
    "model_load_thread_count": 4,
    "allow_http": True,
    "http_port": 8000,
    "reuse_http_port": False,
    "http_header_forward_pattern": "",
    "http_max_input_size": 67108864,
    "log_verbose": 0,
    "log_info": True,
    "log_format": "default",
    "allow_metrics": True,
    "metrics_port": 8002,
    "metrics_interval_ms": 2000,
}


@pytest.mark.parametrize("name", TRITON_DEFAULTS)
def test_a_flag_of_triton_keeps_its_default(name: str) -> None:
    assert TRITON_DEFAULTS[name] == getattr(ServerOptions(), name)


def test_the_server_listens_to_its_own_machine_only_unless_told_otherwise() -> None:
    assert ServerOptions().http_address == "127.0.0.1"
    assert ServerOptions().metrics_address == "127.0.0.1"


@pytest.mark.parametrize("flag", flag_table(), ids=lambda flag: flag.name)
def test_a_default_is_a_value_that_the_flag_itself_could_have_given(flag: Flag) -> None:
    if isinstance(flag.default, (int, float, str)) and flag.kind.metavar:
        assert flag.default == flag.kind.parse(str(flag.default))


def test_flags_of_one_category_stand_together() -> None:
    categories = [flag.category for flag in flag_table()]
    assert len(set(categories)) == 1 + sum(before != after for before, after in pairwise(categories))

"""Triton's flags whose part of the server isn't built yet.

Owns their names, why each is refused, and the values that are accepted because they ask for nothing that is missing.
A flag moves from here to `server_options` together with its part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from naiad.config.options.kinds import Bool, Choice, Int, Kind


@dataclass(frozen=True, slots=True)
class UnbuiltFlag:
    """One flag of Triton's that is refused, but for the values that change nothing.

    `accepted` reads a value and `harmless` are the values of it that are accepted (None: each that `accepted` can read). `note`
    is what the operator is told when such a value means something else than its text says.
    """

    name: str
    reason: str
    accepted: Kind | None = None
    harmless: object = None
    note: str = ""

    def accepts(self, text: str) -> bool:
        """Return whether the server does what this value asks for."""
        if self.accepted is None:
            return False
        try:
            value = self.accepted.parse(text)
        except ValueError:
            return False
        return self.harmless is None or value == self.harmless


_GRPC = "gRPC isn't built yet"
_CONTROL = "model control isn't built yet: all models of the repositories are loaded at the start"
_TRACE = "tracing isn't built yet"
_CACHE = "the response cache isn't built yet"
_RATE = "the rate limiter isn't built yet"
_GPU = "models on GPUs aren't built yet"
_SAGEMAKER = "the SageMaker endpoints aren't built yet"
_VERTEX = "the Vertex AI endpoints aren't built yet"
_AGENTS = "repository agents aren't built yet"

_REFUSED: Mapping[str, tuple[str, ...]] = {
    _GRPC: (
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
    ),
    _CONTROL: ("repository-poll-secs", "load-model"),
    "custom configurations (configs/<name>.pbtxt) aren't built yet": ("model-config-name",),
    _TRACE: ("trace-config", "trace-file", "trace-level", "trace-rate", "trace-count", "trace-log-frequency"),
    _CACHE: ("cache-config", "cache-directory"),
    _RATE: ("rate-limit-resource",),
    _GPU: (
        "cuda-memory-pool-byte-size",
        "cuda-virtual-address-size",
        "min-supported-compute-capability",
        "model-load-gpu-limit",
    ),
    "host policies aren't built yet": ("host-policy",),
    _AGENTS: ("repoagent-directory",),
    _SAGEMAKER: ("sagemaker-port", "sagemaker-safe-port-range", "sagemaker-thread-count"),
    _VERTEX: ("vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model"),
}

_PARTLY_ACCEPTED = (
    UnbuiltFlag("model-control-mode", _CONTROL, Choice(("none", "poll", "explicit")), "none"),
    UnbuiltFlag("model-load-retry-count", "loading again after a failure isn't built yet", Int(), 0),
    UnbuiltFlag("model-namespacing", "namespaces of models aren't built yet", Bool(), False),
    UnbuiltFlag("enable-peer-access", _GPU, Bool(), False),
    UnbuiltFlag(
        "http-thread-count",
        "it must be a whole number of at least 1",
        Int(minimum=1),
        note="HTTP runs on one event loop, so the number isn't used",
    ),
    UnbuiltFlag("allow-grpc", _GRPC, Bool(), False),
    UnbuiltFlag("allow-gpu-metrics", _GPU, Bool(), False),
    UnbuiltFlag("response-cache-byte-size", _CACHE, Int(), 0),
    UnbuiltFlag("rate-limit", _RATE, Choice(("off", "execution_count")), "off"),
    UnbuiltFlag("pinned-memory-pool-byte-size", _GPU, Int(), 0),
    UnbuiltFlag("buffer-manager-thread-count", "copying in threads of their own isn't built yet", Int(), 0),
    UnbuiltFlag("strict-model-config", "use --disable-auto-complete-config", Bool(), False),
    UnbuiltFlag("allow-sagemaker", _SAGEMAKER, Bool(), False),
    UnbuiltFlag("allow-vertex-ai", _VERTEX, Bool(), False),
)


def unbuilt_flags() -> Mapping[str, UnbuiltFlag]:
    """Return the flags by name, without dashes."""
    refused = (UnbuiltFlag(name, reason) for reason, names in _REFUSED.items() for name in names)
    return MappingProxyType({flag.name: flag for flag in (*refused, *_PARTLY_ACCEPTED)})

"""Triton's flags whose part of the server isn't built yet.

Owns their names, why each is refused, and the values that are accepted because they ask for nothing that is missing.
A flag moves from here to `server_options` together with its part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from naiad.config.options.kinds import Bool, Int, Kind


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


_TRACE = "tracing isn't built yet"
_CACHES = "native caches aren't loaded; --cache-config says which are built in"
_GPU = "models on GPUs aren't built yet"
_SAGEMAKER = "the SageMaker endpoints aren't built yet"
_VERTEX = "the Vertex AI endpoints aren't built yet"
_AGENTS = "native repository agents aren't loaded; agents in Python come by the entry point group naiad.repository_agents"

_REFUSED: Mapping[str, tuple[str, ...]] = {
    _TRACE: ("trace-config", "trace-file", "trace-level", "trace-rate", "trace-count", "trace-log-frequency"),
    _CACHES: ("cache-directory",),
    _GPU: (
        "cuda-memory-pool-byte-size",
        "cuda-virtual-address-size",
        "model-load-gpu-limit",
    ),
    _AGENTS: ("repoagent-directory",),
    _SAGEMAKER: ("sagemaker-port", "sagemaker-safe-port-range", "sagemaker-thread-count"),
    _VERTEX: ("vertex-ai-port", "vertex-ai-thread-count", "vertex-ai-default-model"),
}

_PARTLY_ACCEPTED = (
    UnbuiltFlag("enable-peer-access", _GPU, Bool(), False),
    UnbuiltFlag(
        "http-thread-count",
        "it must be a whole number of at least 1",
        Int(minimum=1),
        note="HTTP runs on one event loop, so the number isn't used",
    ),
    UnbuiltFlag(
        "grpc-infer-thread-count",
        "it must be a whole number from 2 to 128",
        Int(2, 128),
        note="gRPC runs on one event loop, so the number isn't used",
    ),
    UnbuiltFlag(
        "grpc-infer-allocation-pool-size",
        "it must be a whole number of at least 1",
        Int(minimum=1),
        note="there is no such pool, so the number isn't used",
    ),
    UnbuiltFlag(
        "grpc-max-response-pool-size",
        "it must be a whole number of at least 1",
        Int(minimum=1),
        note="responses wait by their bytes, not by their number, so the number isn't used",
    ),
    UnbuiltFlag(
        "grpc-http2-max-pings-without-data",
        "it must be a whole number of at least 0",
        Int(minimum=0),
        note="the server pings once a --grpc-keepalive-time, so the number isn't used",
    ),
    UnbuiltFlag(
        "pinned-memory-pool-byte-size",
        "it must be a whole number of at least 0",
        Int(minimum=0),
        note="there is no pool of pinned memory, so the number isn't used",
    ),
    UnbuiltFlag("buffer-manager-thread-count", "copying in threads of their own isn't built yet", Int(), 0),
    UnbuiltFlag("strict-model-config", "use --disable-auto-complete-config", Bool(), False),
    UnbuiltFlag("allow-sagemaker", _SAGEMAKER, Bool(), False),
    UnbuiltFlag("allow-vertex-ai", _VERTEX, Bool(), False),
)


def unbuilt_flags() -> Mapping[str, UnbuiltFlag]:
    """Return the flags by name, without dashes."""
    refused = (UnbuiltFlag(name, reason) for reason, names in _REFUSED.items() for name in names)
    return MappingProxyType({flag.name: flag for flag in (*refused, *_PARTLY_ACCEPTED)})

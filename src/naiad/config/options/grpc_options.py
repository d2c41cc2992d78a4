"""The options of gRPC and their flags; a part of the one table, whose whole is `server_options`.

Owns names, defaults, ranges and help. Times are in milliseconds, as in Triton's flags.
"""

from __future__ import annotations

from dataclasses import dataclass

from naiad.config.options.composite import RestrictedApis, RestrictedGroup, restricted_groups
from naiad.config.options.flag import Category, Flag, option
from naiad.config.options.kinds import Bool, Choice, Int, Text

_GRPC = Category.GRPC
_MILLISECONDS = "milliseconds"
_ANY = Int(minimum=0, maximum=2**31 - 1)
_POSITIVE = Int(minimum=1, maximum=2**31 - 1)


# Without slots: a class can have one base with slots only.
@dataclass(frozen=True)
class GrpcServerOptions:
    """The fields of `ServerOptions` that gRPC has, one field a flag."""

    allow_grpc: bool = option(Flag("allow-grpc", _GRPC, Bool(), True, "Serve the gRPC services."))
    grpc_address: str = option(
        Flag(
            "grpc-address",
            _GRPC,
            Text(is_empty_allowed=False, metavar="ADDRESS"),
            "127.0.0.1",
            "The address to listen on; 0.0.0.0 is every network of the machine (Triton's default), unix:/path is a Unix domain "
            "socket.",
        )
    )
    grpc_port: int = option(Flag("grpc-port", _GRPC, Int(0, 65535), 8001, "The port to listen on; 0 takes a free one."))
    reuse_grpc_port: bool = option(
        Flag("reuse-grpc-port", _GRPC, Bool(), False, "Let several servers listen on the same port (SO_REUSEPORT).")
    )
    grpc_header_forward_pattern: str = option(
        Flag(
            "grpc-header-forward-pattern",
            _GRPC,
            Text(metavar="REGEX"),
            "",
            "An RE2 expression: metadata whose keys match become parameters of the inference request.",
            default_text="none",
        )
    )
    grpc_restricted_protocol: tuple[RestrictedGroup, ...] = option(
        Flag(
            "grpc-restricted-protocol",
            _GRPC,
            RestrictedApis(),
            (),
            "Answer these groups of RPCs only to calls whose metadata has triton-grpc-protocol-<key> with the value, e.g. "
            "model-repository,logging:admin-key=secret. Groups as in --http-restricted-api.",
            default_text="none",
            is_repeatable=True,
            collect=restricted_groups,
        )
    )
    grpc_infer_response_compression_level: str = option(
        Flag(
            "grpc-infer-response-compression-level",
            _GRPC,
            Choice(("none", "low", "medium", "high")),
            "none",
            "How hard responses of inference are packed, for clients that take gzip or deflate.",
        )
    )
    grpc_reflection: bool = option(
        Flag(
            "grpc-reflection",
            _GRPC,
            Bool(),
            True,
            "Answer server reflection, by which tools such as grpcurl learn services and messages. It shows nothing of the "
            "models, so none of the groups of --grpc-restricted-protocol has it.",
            is_ours=True,
        )
    )
    grpc_web: bool = option(
        Flag(
            "grpc-web",
            _GRPC,
            Bool(),
            True,
            "Answer the RPCs to web pages too, as gRPC-Web on the HTTP port. Pages of other origins need --http-cors-origin.",
            is_ours=True,
        )
    )
    grpc_max_message_size: int = option(
        Flag(
            "grpc-max-message-size",
            _GRPC,
            _POSITIVE,
            2**31 - 1,
            "The largest request message, and what a packed one may unpack to.",
            unit="bytes",
            is_ours=True,
        )
    )
    grpc_max_concurrent_streams: int = option(
        Flag(
            "grpc-max-concurrent-streams",
            _GRPC,
            _POSITIVE,
            4096,
            "How many calls may be open at once on one connection.",
            is_ours=True,
        )
    )
    grpc_max_connections: int = option(
        Flag(
            "grpc-max-connections",
            _GRPC,
            _POSITIVE,
            4096,
            "How many connections may be open at once; further ones are closed.",
            is_ours=True,
        )
    )
    grpc_keepalive_time: int = option(
        Flag(
            "grpc-keepalive-time",
            _GRPC,
            _POSITIVE,
            7_200_000,
            "After how long without anything from a client it is asked whether it is still there.",
            unit=_MILLISECONDS,
        )
    )
    grpc_keepalive_timeout: int = option(
        Flag(
            "grpc-keepalive-timeout",
            _GRPC,
            _POSITIVE,
            20_000,
            "How long a client may take to answer that before its connection is closed.",
            unit=_MILLISECONDS,
        )
    )
    grpc_keepalive_permit_without_calls: bool = option(
        Flag(
            "grpc-keepalive-permit-without-calls",
            _GRPC,
            Bool(),
            False,
            "Ask also clients without an open call, and let those ping as others may.",
        )
    )
    grpc_http2_min_recv_ping_interval_without_data: int = option(
        Flag(
            "grpc-http2-min-recv-ping-interval-without-data",
            _GRPC,
            _ANY,
            300_000,
            "How far apart a client's pings must be when nothing is sent to it between them.",
            unit=_MILLISECONDS,
        )
    )
    grpc_http2_max_ping_strikes: int = option(
        Flag(
            "grpc-http2-max-ping-strikes",
            _GRPC,
            _ANY,
            2,
            "How many pings that come too soon are let pass before the connection is closed; 0 lets all pass.",
        )
    )
    grpc_max_connection_age: int = option(
        Flag(
            "grpc-max-connection-age",
            _GRPC,
            _ANY,
            0,
            "How old a connection may become, give or take a tenth, before its client has to make another one; 0 is no limit.",
            unit=_MILLISECONDS,
        )
    )
    grpc_max_connection_age_grace: int = option(
        Flag(
            "grpc-max-connection-age-grace",
            _GRPC,
            _ANY,
            0,
            "How long calls of a connection that is too old may go on before they are ended; 0 is no limit.",
            unit=_MILLISECONDS,
        )
    )

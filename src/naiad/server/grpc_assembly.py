"""The gRPC listener's part of the composition: its options, its RPCs, its site.

Owns nothing. What is made here is joined in `assembly`.
"""

from __future__ import annotations

import asyncio

from naiad.config.options import ServerOptions
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.clients import client_reader
from naiad.frontends.grpc.call import RpcMethod
from naiad.frontends.grpc.calls.infer import InferContext, InferRpc
from naiad.frontends.grpc.calls.stream_infer import StreamInferRpc
from naiad.frontends.grpc.options import GrpcOptions, KeepAlive
from naiad.frontends.grpc.rpc.table import health_methods, reflection_methods, unary_methods
from naiad.frontends.grpc.site import GrpcSite
from naiad.frontends.header_forward import HeaderForwarder
from naiad.request.service import InferenceService
from naiad.wire.proto.infer_request import ProtoTemplates
from naiad.wire.proto.infer_response import ProtoResponseTemplates

_SERVICE = b"/inference.GRPCInferenceService/"
# zlib's levels for Triton's words.
_LEVELS = {"none": 0, "low": 1, "medium": 6, "high": 9}


def grpc_site(
    service: InferenceService, options: ServerOptions, loop: asyncio.AbstractEventLoop, api_keys: ApiKeys | None
) -> GrpcSite:
    """Return the site of the gRPC listener. Raises INVALID_ARGUMENT for a header pattern that isn't RE2."""
    pattern = options.grpc_header_forward_pattern
    context = InferContext(
        service,
        HeaderForwarder(pattern, "--grpc-header-forward-pattern"),
        bool(pattern),
        ProtoTemplates(),
        ProtoResponseTemplates(),
        client_reader(options.fairness_key, api_keys),
    )
    methods = [
        RpcMethod(_SERVICE + b"ModelInfer", "inference", lambda transport: InferRpc(context, transport)),
        RpcMethod(_SERVICE + b"ModelStreamInfer", "inference", lambda transport: StreamInferRpc(context, transport)),
        *unary_methods(service),
        *health_methods(service, loop.call_soon),
    ]
    if options.grpc_reflection:
        methods += reflection_methods(loop.call_soon)
    return GrpcSite(methods, _grpc_options(options, api_keys), loop)


def _grpc_options(options: ServerOptions, api_keys: ApiKeys | None) -> GrpcOptions:
    keep_alive = KeepAlive(
        time_s=options.grpc_keepalive_time / 1e3,
        timeout_s=options.grpc_keepalive_timeout / 1e3,
        permits_without_calls=options.grpc_keepalive_permit_without_calls,
        min_ping_interval_s=options.grpc_http2_min_recv_ping_interval_without_data / 1e3,
        max_ping_strikes=options.grpc_http2_max_ping_strikes,
        max_age_s=options.grpc_max_connection_age / 1e3,
        max_age_grace_s=options.grpc_max_connection_age_grace / 1e3,
    )
    return GrpcOptions(
        max_message_size=options.grpc_max_message_size,
        max_concurrent_streams=options.grpc_max_concurrent_streams,
        max_connections=options.grpc_max_connections,
        response_compression_level=_LEVELS[options.grpc_infer_response_compression_level],
        restricted=options.grpc_restricted_protocol,
        api_keys=api_keys,
        keep_alive=keep_alive,
    )

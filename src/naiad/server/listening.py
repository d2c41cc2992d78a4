"""What the server listens at: which sockets, with which TLS, and who shares one.

Owns the step from options to bound sockets, and what options of TLS mean together. Doesn't own what is served there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from naiad.config.options import ServerOptions
from naiad.errors import invalid_argument
from naiad.frontends.sockets import BoundSocket, bind
from naiad.frontends.tls import ServerTls, TlsFiles

_HTTP, _GRPC = "http/1.1", "h2"


@dataclass(frozen=True, slots=True)
class Sockets:
    """The bound sockets, None where the operator doesn't want the service. HTTP and gRPC may share one."""

    http: BoundSocket | None = None
    grpc: BoundSocket | None = None
    metrics: BoundSocket | None = None

    @property
    def is_one(self) -> bool:
        """Whether HTTP and gRPC share a socket."""
        return self.http is not None and self.http is self.grpc

    def named(self) -> dict[str, BoundSocket]:
        """Return those that there are, by name."""
        pairs = {"http": self.http, "grpc": self.grpc, "metrics": self.metrics}
        return {name: bound for name, bound in pairs.items() if bound is not None}

    def line(self) -> str:
        """Return the one line for programs that says where the server listens."""
        return f"NAIAD_LISTENING {json.dumps({name: bound.address for name, bound in self.named().items()})}"

    def tls(self) -> list[ServerTls]:
        """Return the TLS of all of them, for its renewal."""
        return list({id(bound.tls): bound.tls for bound in self.named().values() if bound.tls is not None}.values())

    def close(self) -> None:
        """Close all. May be repeated."""
        for bound in self.named().values():
            bound.close()


def bind_all(options: ServerOptions) -> Sockets:
    """Bind every address. Raises InferenceServerError for one that can't be had and for TLS that can't be set up."""
    bound: list[BoundSocket] = []

    def opened(address: str, port: int, is_shared: bool, tls: ServerTls | None) -> BoundSocket:
        bound.append(bind(address, port, is_shared, tls))
        return bound[-1]

    try:
        http = grpc = metrics = None
        if options.one_port:
            _check_one_port(options)
        if options.allow_http:
            http = opened(options.http_address, options.http_port, options.reuse_http_port, _http_tls(options))
        if options.one_port:
            grpc = http
        elif options.allow_grpc:
            grpc = opened(options.grpc_address, options.grpc_port, options.reuse_grpc_port, _grpc_tls(options))
        if options.allow_metrics:
            metrics = opened(options.metrics_address, options.metrics_port, False, None)
    except Exception:
        for each in bound:
            each.close()
        raise
    return Sockets(http, grpc, metrics)


def _check_one_port(options: ServerOptions) -> None:
    if not (options.allow_http and options.allow_grpc):
        raise invalid_argument("--one-port is HTTP and gRPC on one port: neither --allow-http nor --allow-grpc can be false")
    if options.grpc_use_ssl or options.grpc_use_ssl_mutual:
        raise invalid_argument("--grpc-use-ssl is TLS for gRPC's own port: with --one-port, use --tls-cert")


def _http_tls(options: ServerOptions) -> ServerTls | None:
    files = _common_files(options)
    # Clients that offer both speak HTTP: those of gRPC offer HTTP/2 only.
    return None if files is None else ServerTls(files, [_HTTP, _GRPC] if options.one_port else [_HTTP])


def _grpc_tls(options: ServerOptions) -> ServerTls | None:
    files = _files_of_grpc(options) or _common_files(options)
    return None if files is None else ServerTls(files, [_GRPC])


def _common_files(options: ServerOptions) -> TlsFiles | None:
    if options.tls_cert is None:
        for name, path in (("tls-key", options.tls_key), ("tls-client-ca", options.tls_client_ca)):
            if path is not None:
                raise invalid_argument(f"--{name} is given without --tls-cert, the server's certificate")
        return None
    return TlsFiles(options.tls_cert, options.tls_key or options.tls_cert, options.tls_client_ca, options.tls_min_version)


def _files_of_grpc(options: ServerOptions) -> TlsFiles | None:
    is_mutual = options.grpc_use_ssl_mutual
    if not (options.grpc_use_ssl or is_mutual):
        return None
    flag = "--grpc-use-ssl-mutual" if is_mutual else "--grpc-use-ssl"
    certificate = _needed(options.grpc_server_cert, flag, "--grpc-server-cert")
    key = _needed(options.grpc_server_key, flag, "--grpc-server-key")
    authorities = _needed(options.grpc_root_cert, flag, "--grpc-root-cert") if is_mutual else None
    return TlsFiles(certificate, key, authorities, options.tls_min_version)


def _needed(path: Path | None, flag: str, missing: str) -> Path:
    if path is None:
        raise invalid_argument(f"{flag}=true needs {missing}")
    return path

"""The options of TLS and their flags; a part of the one table, whose whole is `server_options`.

Owns names, defaults and help. What they mean together is checked where the files are read (`server.listening`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from naiad.config.options.flag import Category, Flag, option
from naiad.config.options.kinds import Bool, Choice, LocalPath

_TLS, _GRPC = Category.TLS, Category.GRPC
_NONE = "none"


# Without slots: a class can have one base with slots only.
@dataclass(frozen=True)
class TlsOptions:
    """The fields of `ServerOptions` for TLS: one set for HTTP and gRPC, and Triton's for gRPC alone."""

    tls_cert: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "tls-cert",
            _TLS,
            LocalPath(),
            None,
            "Serve HTTP and gRPC over TLS with the certificate in this PEM file, followed by those that lead to its root. "
            "SIGHUP reads the files of TLS again.",
            default_text=_NONE,
            is_ours=True,
        )
    )
    tls_key: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "tls-key",
            _TLS,
            LocalPath(),
            None,
            "The certificate's key, as a PEM file that isn't encrypted.",
            default_text="in --tls-cert's file",
            is_ours=True,
        )
    )
    tls_client_ca: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "tls-client-ca",
            _TLS,
            LocalPath(),
            None,
            "Let in only clients with a certificate that an authority in this PEM file has signed (mutual TLS).",
            default_text=_NONE,
            is_ours=True,
        )
    )
    tls_min_version: str = option(
        Flag("tls-min-version", _TLS, Choice(("1.2", "1.3")), "1.2", "The oldest version of TLS that is spoken.", is_ours=True)
    )
    grpc_use_ssl: bool = option(
        Flag("grpc-use-ssl", _GRPC, Bool(), False, "Serve gRPC alone over TLS, with --grpc-server-cert and --grpc-server-key.")
    )
    grpc_use_ssl_mutual: bool = option(
        Flag(
            "grpc-use-ssl-mutual",
            _GRPC,
            Bool(),
            False,
            "As --grpc-use-ssl, and only for clients with a certificate of an authority in --grpc-root-cert.",
        )
    )
    grpc_server_cert: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag("grpc-server-cert", _GRPC, LocalPath(), None, "The certificate of --grpc-use-ssl, a PEM file.", default_text=_NONE)
    )
    grpc_server_key: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag("grpc-server-key", _GRPC, LocalPath(), None, "The key of that certificate, a PEM file.", default_text=_NONE)
    )
    grpc_root_cert: Path | None = option(  # noqa: RUF009 - a field, made by a factory
        Flag(
            "grpc-root-cert",
            _GRPC,
            LocalPath(),
            None,
            "The authorities of --grpc-use-ssl-mutual, a PEM file.",
            default_text=_NONE,
        )
    )


def unused_flags(options: TlsOptions, given: Collection[str]) -> Iterator[str]:
    """Yield a note for each flag of TLS that is `given` (names of fields) and changes nothing beside the others."""
    is_mutual = options.grpc_use_ssl_mutual
    is_grpc_alone = options.grpc_use_ssl or is_mutual
    for name in ("grpc_server_cert", "grpc_server_key", "grpc_root_cert"):
        flag = f"--{name.replace('_', '-')}"
        if name in given and not is_grpc_alone:
            yield f"{flag}: gRPC has no TLS of its own without --grpc-use-ssl=true, so the file isn't used"
        elif name in given and name == "grpc_root_cert" and not is_mutual:
            yield f"{flag}: clients are asked for no certificate without --grpc-use-ssl-mutual=true, so the file isn't used"
    if "tls_min_version" in given and options.tls_cert is None and not is_grpc_alone:
        yield "--tls-min-version: there is no TLS without a certificate, so it isn't used"

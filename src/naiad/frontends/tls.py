"""TLS of a listener: its certificate, whose clients it lets in, and their renewal while it serves.

Owns the `ssl` contexts. Doesn't own which listener has which files (`server.listening`).
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from naiad.errors import InferenceServerError, invalid_argument

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the server's certificate with those that lead to its root, and the certificate's key.

    With `client_ca`, only clients whose certificate one of the authorities in that file has signed are let in (mutual TLS).
    `minimum_version` is "1.2" or "1.3".
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    minimum_version: str = "1.2"


class ServerTls:
    """The TLS of one listener. `protocols` are what may be spoken (ALPN), the one that is preferred first.

    Raises INVALID_ARGUMENT for files that can't be used.
    """

    def __init__(self, files: TlsFiles, protocols: Sequence[str]) -> None:
        self._files = files
        self._protocols = list(protocols)
        self._newest = self.context = self._made()
        # Called in each handshake, also for clients that give no name.
        self.context.sni_callback = self._use_newest

    @property
    def certificate(self) -> Path:
        """The file of the server's certificate."""
        return self._files.certificate

    def reload(self) -> None:
        """Read the files again, for connections from now on. Raises INVALID_ARGUMENT, and goes on with the old ones, when they
        can't be used.
        """
        self._newest = self._made()

    def _use_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self._files.minimum_version]
        context.set_alpn_protocols(self._protocols)
        _load_certificate(context, self._files)
        if self._files.client_ca is not None:
            _load_authorities(context, self._files.client_ca)
        return context


def _load_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    for path in (files.certificate, files.key):
        _check_readable(path)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        raise invalid_argument(
            f"'{files.certificate}' and '{files.key}' are no certificate and its key, as PEM files: {error.reason or error}"
        ) from error


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise invalid_argument(f"'{path}' has no certificates of authorities in PEM form: {error.reason or error}") from error
    context.verify_mode = ssl.CERT_REQUIRED
    # A client that resumes a session isn't looked at again: after a reload it may be one that is let in no longer.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise invalid_argument(f"'{path}' can't be read: {error.strerror}") from error


def _no_password() -> str:
    # Without this, OpenSSL would ask at the terminal.
    raise _encrypted()


def _encrypted() -> InferenceServerError:
    return invalid_argument("the key of the TLS certificate is encrypted: give one that isn't, readable by the server only")

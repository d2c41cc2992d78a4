"""Certificates for tests: authorities made on the spot, and PEM files of what they sign."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Signed:
    """A certificate, its key and the authority that signed it, as files."""

    cert: Path
    key: Path
    ca: Path

    def overwrite(self, other: Signed) -> None:
        """Put the certificate of `other` where this one is, as a renewal does."""
        for mine, new in ((self.cert, other.cert), (self.key, other.key)):
            renewed = mine.with_suffix(".new")
            renewed.write_bytes(new.read_bytes())
            renewed.replace(mine)


def signed(folder: Path, name: str, authority: trustme.CA | None = None, identity: str = "localhost") -> Signed:
    """Return a certificate for `identity` and 127.0.0.1, by `authority` or one of its own, in files called `name`."""
    authority = authority or trustme.CA()
    issued = authority.issue_cert(identity, "127.0.0.1")
    files = Signed(folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}-ca.pem")
    authority.cert_pem.write_to_path(files.ca)
    issued.private_key_pem.write_to_path(files.key)
    files.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return files

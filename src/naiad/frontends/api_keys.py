"""API keys: which requests bring one that is valid, for HTTP and gRPC alike, and the file that keys are renewed from.

Owns the keys in use, as SHA-256 digests only, and the check of `Authorization: Bearer <key>` (RFC 6750). Doesn't own what a
refusal looks like on the wire, nor which group an endpoint belongs to.
"""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from naiad.config.options import ApiKey
from naiad.config.options.access_options import KEY_RULE
from naiad.errors import InferenceServerError, invalid_argument

Headers = Sequence[tuple[bytes, bytes]]

# Each is compared with what a client sends: this many take 0.1 ms.
_MOST_KEYS = 1000
_MOST_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BEARER = re.compile(rb"bearer +([\x21-\x7e]{1,512}) *", re.IGNORECASE)
_MISSING = "this server asks for an API key: send 'Authorization: Bearer <key>'"
_CHALLENGE = 'Bearer realm="naiad"'
_INVALID_TOKEN = f'{_CHALLENGE}, error="invalid_token"'

_log = logging.getLogger("naiad.access")


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a request isn't answered. `challenge` is the value of WWW-Authenticate when it is for want of a valid API key, else
    "".
    """

    text: str
    challenge: str = ""


class ApiKeys:
    """The keys in use: those that are `given`, and those in the file at `path`. `open_groups` need none. Loop thread only.

    Raises INVALID_ARGUMENT for a file that can't be used.
    """

    def __init__(self, given: Sequence[ApiKey], path: Path | None = None, open_groups: Iterable[str] = ()) -> None:
        self._given = tuple(given)
        self._path = path
        self._open_groups = frozenset(open_groups)
        self._callbacks: list[Callable[[], None]] = []
        self._keys = self._made()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the keys have changed, so that no decision made with the old ones is kept."""
        self._callbacks.append(callback)

    def reload(self) -> None:
        """Read the file again, for requests from now on. One that can't be used changes nothing and is named in the log."""
        if self._path is None:
            return
        try:
            self._keys = self._made()
        except InferenceServerError as error:
            _log.error("the API keys were not read again, the old ones stay in use: %s", error.message)
            return
        for callback in self._callbacks:
            callback()
        _log.info("the API keys in '%s' were read again, %d are in use", self._path, len(self._keys))

    def needs_key(self, group: str) -> bool:
        """Return whether requests to this group of endpoints need a key; "" is the group of what belongs to none."""
        return group not in self._open_groups

    def check(self, group: str, headers: Headers) -> AccessRefusal | None:
        """Return None when a request with these headers (names in lower case) may use `group`, else its refusal."""
        if group in self._open_groups:
            return None
        values = [value for name, value in headers if name == b"authorization"]
        if len(values) > 1:
            return AccessRefusal(f"'Authorization' is there {len(values)} times, it may be there once", _INVALID_TOKEN)
        if not values or values[0][:6].lower() != b"bearer":
            return AccessRefusal(_MISSING, _CHALLENGE)
        found = _BEARER.fullmatch(values[0])
        if found is None or self._find(found[1]) is None:
            return AccessRefusal("the API key in 'Authorization: Bearer <key>' is not valid", _INVALID_TOKEN)
        return None

    def client_of(self, headers: Headers) -> str:
        """Return the name of the key of a request with these headers, the beginning of its digest when it has none, and "" for
        a request without a valid key.
        """
        found = _BEARER.fullmatch(dict(headers).get(b"authorization", b""))
        key = None if found is None else self._find(found[1])
        return "" if key is None else key.name or f"key-{key.digest.hex()[:8]}"

    def _find(self, token: bytes) -> ApiKey | None:
        """Return the key that is `token`. Every key is compared in full: how long it takes tells nothing."""
        digest = sha256(token).digest()
        found = None
        for key in self._keys:
            if compare_digest(key.digest, digest):
                found = key
        return found

    def _made(self) -> tuple[ApiKey, ...]:
        keys = self._given if self._path is None else (*self._given, *read_keys(self._path))
        if len(keys) > _MOST_KEYS:
            raise invalid_argument(f"there are {len(keys)} API keys, at most {_MOST_KEYS} are allowed")
        return keys


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Return the keys in a file. Raises INVALID_ARGUMENT, naming place and rule but no key, for one that can't be used."""
    where = f"the file of API keys '{path}'"
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise invalid_argument(f"{where} is no regular file")
        if status.st_size > _MOST_FILE_BYTES:
            raise invalid_argument(f"{where} has {status.st_size} bytes, at most {_MOST_FILE_BYTES} are allowed")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise invalid_argument(f"{where} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise invalid_argument(f"{where} is not in UTF-8") from error.with_traceback(None)
    keys = [_key(line, f"{where}, line {number}") for number, line in enumerate(text.split("\n"), 1) if _has_key(line)]
    if not keys:
        raise invalid_argument(f"{where} has no keys: it takes one a line, '<key>' or '<name> <key>'")
    if status.st_mode & stat.S_IROTH:
        _log.warning("%s can be read by every user of this machine: chmod 600 keeps it to its owner", where)
    return tuple(keys)


def _has_key(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _key(line: str, where: str) -> ApiKey:
    *names, key = line.split()
    if len(names) > 1 or not all(map(_NAME.fullmatch, names)):
        raise invalid_argument(
            f"{where}: a line is '<key>' or '<name> <key>', with a name of 1 to 64 letters, digits, '.', '_' and '-'"
        )
    try:
        return ApiKey.of(key, *names)
    except ValueError as error:
        raise invalid_argument(f"{where}: a key must be {KEY_RULE}") from error

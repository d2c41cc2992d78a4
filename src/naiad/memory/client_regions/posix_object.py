"""Opening a POSIX shared memory object by its key.

Owns which keys may be opened and how. Goes round `multiprocessing.shared_memory`, whose resource tracker would unlink a
client's object when the server ends.
"""

from __future__ import annotations

import importlib
import os
import stat
import sys

from naiad.errors import InferenceServerError, internal, invalid_argument

# Triton keeps this for memory between it and its Python models; clients never have business there.
_RESERVED_PREFIX = "triton_python_backend_shm_region_"
_LONGEST_NAME_BYTES = 255
_FOLDER = "/dev/shm/"  # noqa: S108 - where Linux keeps such objects
_IS_LINUX = sys.platform == "linux"


def open_object(key: str) -> int:
    """Return a descriptor, for reading and writing, of the object that shm_open knows as `key`; it isn't inherited.

    Raises INVALID_ARGUMENT for a key that no object may have, INTERNAL when the system doesn't open it.
    """
    name = _checked_name(key)
    try:
        fd = _open(name)
    except (OSError, ValueError) as error:
        raise _not_opened(key, getattr(error, "strerror", None) or str(error)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_opened(key, "it isn't a shared memory object")
    return fd


def _checked_name(key: str) -> str:
    """Return the key without leading slashes, which mean nothing."""
    name = key.lstrip("/")
    if not name:
        raise invalid_argument(
            f"shared memory key '{key[:64]}' names no object: it must be a name, with or without a leading '/'"
        )
    if name.startswith(_RESERVED_PREFIX):
        raise invalid_argument(
            f"shared memory key '{key[:300]}' is refused: keys that begin with '{_RESERVED_PREFIX}' are reserved"
        )
    if name in (".", "..") or "/" in name or "\0" in name:
        raise invalid_argument(
            f"shared memory key {key[:300]!r} is refused: it must be one name that is not '.' or '..' and has no '/' after its "
            "beginning and no NUL"
        )
    if len(name.encode("utf-8", "surrogatepass")) > _LONGEST_NAME_BYTES:
        raise invalid_argument(f"shared memory key '{key[:64]}…' is too long: at most {_LONGEST_NAME_BYTES} bytes are allowed")
    return name


def _open(name: str) -> int:
    if _IS_LINUX:
        return os.open(_FOLDER + name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    fd: int = importlib.import_module("_posixshmem").shm_open("/" + name, os.O_RDWR, mode=0o600)
    return fd


def _not_opened(key: str, reason: str) -> InferenceServerError:
    return internal(f"Unable to open shared memory region: '{key}': {reason}")

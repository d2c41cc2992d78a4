"""What must be equal of a model on two servers, or before and after a restart, so that each may use the other's kept answers.

Owns the digest of the model's folder and configuration, which a model gets by its own wish. Doesn't own answers.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from naiad.errors import InferenceServerError, invalid_argument
from naiad.proto import Message

SHARED_PARAMETER = "naiad_cache_shared"

# How and where a model runs, but not what it answers.
_LEFT_OUT = ("instance_group", "dynamic_batching", "model_warmup", "version_policy", "response_cache", "metric_tags")
_CHUNK_BYTES = 1 << 20


def answers_digest(config: Message, parameters: Mapping[str, str], directory: Path, version_directory: Path) -> bytes:
    """Return 32 bytes that equal models share, b"" for a model that doesn't ask for it; blocking.

    In it are the configuration, the kinds of instances, and the name and content of every file in the version's folder and in
    the model's, without other versions, config.pbtxt and `__pycache__`. Raises INVALID_ARGUMENT for a wish that can't be
    fulfilled: a wrong value, no cache, an ensemble, a link to a folder or something that isn't a file, an unreadable file.
    """
    wish = parameters.get(SHARED_PARAMETER, "false")
    if wish not in ("true", "false"):
        raise _refusal(config, f"is '{wish}', must be true or false")
    if wish == "false":
        return b""
    if not config.response_cache.enable:
        raise _refusal(config, "needs response_cache { enable: true }")
    if config.HasField("ensemble_scheduling"):
        raise _refusal(config, "is for models with files of their own: an ensemble's answers depend on other models")
    digest = hashlib.sha256(_settings(config))
    try:
        for place, path in _files(config, directory, version_directory):
            _add(digest, place, path)
    except OSError as error:
        raise _refusal(config, f"needs every file of the model: {error.filename} can't be read: {error.strerror}") from error
    return digest.digest()


def _settings(config: Message) -> bytes:
    kept = type(config)()
    kept.CopyFrom(config)
    for name in _LEFT_OUT:
        kept.ClearField(name)
    text = kept.SerializeToString(deterministic=True)
    kinds = sorted({group.kind for group in config.instance_group})
    return b"%d:%b%r" % (len(text), text, kinds)


def _files(config: Message, directory: Path, version_directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files with their places in the model, in order."""
    skipped = {entry.name for entry in os.scandir(directory) if entry.name.isdecimal()} | {"config.pbtxt"}
    for kind, root in (("version", version_directory), ("model", directory)):
        for folder, folders, names in os.walk(root, onerror=_raise):
            is_top = kind == "model" and Path(folder) == directory
            folders[:] = sorted(name for name in folders if name != "__pycache__" and not (is_top and name in skipped))
            for name in folders:
                if Path(folder, name).is_symlink():
                    raise _refusal(config, f"can't be: {Path(folder, name)} is a link to a folder")
            for name in sorted(names):
                path = Path(folder, name)
                if is_top and name in skipped:
                    continue
                if not stat.S_ISREG(path.stat().st_mode):
                    raise _refusal(config, f"can't be: {path} isn't a file")
                yield f"{kind}/{path.relative_to(root).as_posix()}", path


def _add(digest: hashlib._Hash, place: str, path: Path) -> None:
    name = place.encode("utf-8", "surrogateescape")
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        digest.update(b"%d:%b%d:" % (len(name), name, size_bytes))
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)


def _raise(error: OSError) -> None:
    raise error


def _refusal(config: Message, text: str) -> InferenceServerError:
    return invalid_argument(f"model '{config.name}': parameter '{SHARED_PARAMETER}' {text}")

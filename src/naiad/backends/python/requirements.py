"""Environments for a model's requirements.txt: a venv of the server's interpreter, made once and cached.

Owns the key of such a venv and the commands that fill it. The venv sees no packages of the server's environment: what a model
gets then depends on its own file only, and neither changes with the other.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from naiad.backends.python.cache import cached
from naiad.backends.python.command import CommandResult, run_command
from naiad.backends.python.interpreter import child_environment, interpreter_in, variables_of
from naiad.backends.python.settings import EnvironmentSettings
from naiad.errors import InferenceServerError, invalid_argument, unavailable

FILE_NAME = "requirements.txt"

_PIP_FLAGS = ("--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=off")

_log = logging.getLogger("naiad.backends.python")


def installed(file: Path, settings: EnvironmentSettings) -> Path:
    """Return the folder of a venv with what `file` lists, and numpy; blocking.

    It is made once for the same content, interpreter and local files that it names. Raises INVALID_ARGUMENT with the end of
    pip's output when that fails, UNAVAILABLE when no venv can be made.
    """
    return cached(settings.cache_directory, f"requirements-{_key(file)[:32]}", lambda folder: _make(file, folder, settings))


def _key(file: Path) -> str:
    digest = hashlib.sha256()
    for part in (sys.version, sys.base_prefix, *_sources(file, frozenset())):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def _sources(file: Path, seen: frozenset[Path]) -> Iterator[str]:
    """Yield the lines of `file`; after one that names a local file, also which file that is and of when, or its own lines."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid_argument(f"'{file}' can't be read: {error}") from error
    for line in text.splitlines():
        yield line
        for path in _local_paths(line, file.parent):
            if path.suffix == ".txt" and path.is_file() and path not in seen:
                yield from _sources(path, seen | {file.resolve()})
            else:
                status = path.stat()
                yield f"{path} {status.st_size} {status.st_mtime_ns}"


def _local_paths(line: str, folder: Path) -> Iterator[Path]:
    for word in line.partition(" #")[0].replace("=", " ").split():
        for text in (word.removeprefix("file://"), word[2:] if word[:2] in ("-r", "-c", "-f", "-e") else ""):
            path = folder / text
            if text and path.exists():
                yield path.resolve()


def _make(file: Path, folder: Path, settings: EnvironmentSettings) -> None:
    _log.info("installing '%s' into '%s'", file, folder)
    began = time.monotonic()
    variables = child_environment({"PYTHONNOUSERSITE": "1"})
    venv = run_command([sys.executable, "-m", "venv", str(folder)], variables, folder.parent, settings.timeout_s)
    if not venv.is_success:
        raise unavailable(f"a venv for '{file}' can't be made with '{sys.executable}': {venv.tail}")
    interpreter = interpreter_in(folder)
    if interpreter is None:
        raise unavailable(f"a venv for '{file}' has no bin/python, made with '{sys.executable}'")
    # One command for both, so that pip takes a numpy that fits what the file asks for.
    command = [str(interpreter), "-m", "pip", "install", *_PIP_FLAGS, "-r", str(file), "numpy"]
    pip = run_command(command, child_environment(variables_of(folder)), file.parent, settings.timeout_s)
    _log_output(file, pip)
    if not pip.is_success:
        raise _failure(file, pip)
    _log.info("installed '%s' in %.1f s", file, time.monotonic() - began)


def _log_output(file: Path, pip: CommandResult) -> None:
    level = logging.DEBUG if pip.is_success else logging.ERROR
    for line in pip.output.splitlines():
        _log.log(level, "pip for '%s': %s", file, line)


def _failure(file: Path, pip: CommandResult) -> InferenceServerError:
    return invalid_argument(f"'{file}' can't be installed, pip failed:\n{pip.tail}")

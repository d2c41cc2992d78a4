"""Environments for a model's requirements.txt: a venv of the server's interpreter, made once and cached.

Owns the key of such a venv and the commands that fill it. The venv sees no packages of the server's environment: what a model
gets then depends on its own file only, and neither changes with the other.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from naiad.backends.python.cache import cached
from naiad.backends.python.command import CommandResult, run_command
from naiad.backends.python.interpreter import OLDEST_NUMPY, child_environment, interpreter_in, variables_of
from naiad.backends.python.settings import EnvironmentSettings
from naiad.errors import InferenceServerError, invalid_argument, unavailable

FILE_NAME = "requirements.txt"

_PATH_OPTIONS = ("-r", "-c", "-f", "-e")
_PIP_FLAGS = ("--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=off")

_NUMPY = f"numpy>={'.'.join(map(str, OLDEST_NUMPY))}"
# They would have pip install elsewhere.
_OTHER_TARGETS = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")

_log = logging.getLogger("naiad.backends.python")


def installed(file: Path, settings: EnvironmentSettings) -> Path:
    """Return the folder of a venv with what `file` lists, and numpy; blocking.

    It is made once for the same content, interpreter and local files that it names. Raises INVALID_ARGUMENT with the end of
    pip's output when that fails, UNAVAILABLE when no venv can be made.
    """
    return cached(settings.cache_directory, f"requirements-{content_key(file)}", lambda folder: _make(file, folder, settings))


def content_key(file: Path) -> str:
    """Return what is equal for equal venvs: it stands for the lines of `file`, for the files that they name, and for the
    interpreter.
    """
    digest = hashlib.sha256()
    for part in (sys.version, sys.base_prefix, *_sources(file, frozenset())):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()[:32]


def _sources(file: Path, seen: frozenset[Path]) -> Iterator[str]:
    """Yield the lines of `file`; after one that names a local file, also which file that is and of when, or its own lines."""
    try:
        text = file.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise invalid_argument(f"'{file}' can't be read: {error.strerror}") from error
    for line in text.splitlines():
        yield line
        for path, status in _local_files(line, file.parent):
            if path.suffix == ".txt" and path not in seen:
                yield from _sources(path, seen | {file.resolve()})
            else:
                yield f"{path} {status.st_size} {status.st_mtime_ns}"


def _local_files(line: str, folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield what a line names of the file system, whatever the option: a word that is by chance a file's does no harm."""
    for word in line.partition(" #")[0].replace("=", " ").split():
        for text in (word.removeprefix("file://"), word[2:] if word[:2] in _PATH_OPTIONS else ""):
            path = folder / text
            status = _status(path)
            if text and status is not None:
                yield path.resolve(), status


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _make(file: Path, folder: Path, settings: EnvironmentSettings) -> None:
    _log.info("installing '%s' into '%s'", file, folder)
    began = time.monotonic()
    command = [sys.executable, "-I", "-m", "venv", str(folder)]
    venv = run_command(command, child_environment({}), folder.parent, settings.timeout_s)
    if not venv.is_success:
        raise unavailable(f"a venv for '{file}' can't be made with '{sys.executable}': {venv.tail}")
    interpreter = interpreter_in(folder)
    if interpreter is None:
        raise unavailable(f"a venv for '{file}' has no bin/python, made with '{sys.executable}'")
    # One command for both, so that pip takes a numpy that fits what the file asks for.
    command = [str(interpreter), "-I", "-m", "pip", "install", *_PIP_FLAGS, "-r", str(file), _NUMPY]
    pip = run_command(command, _pip_variables(folder), file.parent, settings.timeout_s)
    _log_output(file, pip)
    if not pip.is_success:
        raise _failure(file, pip)
    _log.info("installed '%s' in %.1f s", file, time.monotonic() - began)


def _pip_variables(folder: Path) -> dict[str, str]:
    variables = child_environment(variables_of(folder))
    return {name: value for name, value in variables.items() if name not in _OTHER_TARGETS}


def _log_output(file: Path, pip: CommandResult) -> None:
    level = logging.DEBUG if pip.is_success else logging.ERROR
    for line in pip.output.splitlines():
        _log.log(level, "pip for '%s': %s", file, line)


def _failure(file: Path, pip: CommandResult) -> InferenceServerError:
    return invalid_argument(f"'{file}' can't be installed, pip failed:\n{pip.tail}")

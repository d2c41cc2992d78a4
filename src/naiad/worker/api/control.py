"""What a model tells and asks the server beside inference: lines for its log; loading, unloading, readiness of other models.

Owns the checks of the arguments. All of it goes through the host.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from naiad.worker.api import host
from naiad.worker.api.errors import check_type


class LogLevel(Enum):
    """How much a line of the log matters."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    VERBOSE = "VERBOSE"


# The class has a member of that name.
_Level = LogLevel


class Logger:
    """Writes lines to the server's log, each with the model's name."""

    LogLevel: ClassVar[type[_Level]] = _Level
    INFO: ClassVar[_Level] = _Level.INFO
    WARNING: ClassVar[_Level] = _Level.WARNING
    ERROR: ClassVar[_Level] = _Level.ERROR
    VERBOSE: ClassVar[_Level] = _Level.VERBOSE

    @staticmethod
    def log(message: str, level: _Level = _Level.INFO) -> None:
        """Write `message`. Raises TritonModelException for a level that isn't one."""
        check_type("a log level, such as Logger.INFO,", level, _Level)
        host.current().log(level.value, str(message))

    @staticmethod
    def log_info(message: str) -> None:
        """Write `message` with level INFO."""
        Logger.log(message, _Level.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        """Write `message` with level WARNING."""
        Logger.log(message, _Level.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        """Write `message` with level ERROR."""
        Logger.log(message, _Level.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Write `message` with level VERBOSE: it shows when the server's verbose log is on."""
        Logger.log(message, _Level.VERBOSE)


def get_model_dir() -> str:
    """Return the folder of the model's version, in which its data are; also for a model of a Python-based backend."""
    return host.current().version_directory


def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
    """Load a model, or load it anew, and block until it serves.

    `config` is its configuration as JSON in place of that in the repository, `files` are its files in place of those there, by
    "file:<path in the model's folder>". Raises TritonModelException with the reason when it can't be loaded.
    """
    contents: dict[str, str] = {}
    for name, content in (files or {}).items():
        check_type(f"the content of '{name}'", content, bytes, bytearray, memoryview)
        contents[name] = base64.b64encode(content).decode()
    check_type("model_name", model_name, str)
    check_type("config", config, str)
    host.current().query("load_model", {"model_name": model_name, "config": config, "files": contents})


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model, with `unload_dependents` also those that only it needs. Raises TritonModelException when it can't be."""
    check_type("model_name", model_name, str)
    host.current().query("unload_model", {"model_name": model_name, "unload_dependents": bool(unload_dependents)})


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Return whether a model serves; `model_version` "" is any."""
    check_type("model_name", model_name, str)
    check_type("model_version", model_version, str)
    return bool(host.current().query("is_model_ready", {"model_name": model_name, "model_version": model_version}))

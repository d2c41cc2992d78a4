"""Where log lines go and which there are: set up when the server starts, changed while it runs.

Owns the logger `naiad` and its one handler; the root logger and those of others stay as they are. Nothing happens at import.
Verbose messages are those below INFO: DEBUG (10) is verbose level 1, 9 is level 2, and so on down to 1, which is level 10.
"""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from naiad.errors import InferenceServerError, invalid_argument, unimplemented
from naiad.observability.log_format import LOG_FORMATS, LineFormatter

LOGGER_NAME = "naiad"

_NOTHING = logging.CRITICAL + 1


class LogOptions(Protocol):
    """What an operator says of logging at the start."""

    @property
    def log_info(self) -> bool:
        """Whether information is written."""

    @property
    def log_warning(self) -> bool:
        """Whether warnings are written."""

    @property
    def log_error(self) -> bool:
        """Whether errors are written."""

    @property
    def log_verbose(self) -> int:
        """Up to which level verbose messages are written, 0 for none."""

    @property
    def log_format(self) -> str:
        """One of `LOG_FORMATS`."""

    @property
    def log_file(self) -> str:
        """The file that lines are appended to, "" for stderr."""


@dataclass(frozen=True, slots=True)
class _Values:
    """The settings under the names, and in the order, of the logging extension."""

    log_file: str
    log_info: bool
    log_warning: bool
    log_error: bool
    log_verbose_level: int
    log_format: str

    def is_enabled(self, level: int) -> bool:
        """Return whether messages of the standard library's `level` are written."""
        if level >= logging.ERROR:
            return self.log_error
        if level >= logging.WARNING:
            return self.log_warning
        if level >= logging.INFO:
            return self.log_info
        return level >= self._lowest_verbose()

    def lowest_enabled(self) -> int:
        """Return the lowest level that is written, so that what is off below it costs next to nothing."""
        levels = (self._lowest_verbose(), logging.INFO, logging.WARNING, logging.ERROR)
        return min((level for level in levels if self.is_enabled(level)), default=_NOTHING)

    def _lowest_verbose(self) -> int:
        return max(logging.DEBUG + 1 - self.log_verbose_level, 1) if self.log_verbose_level else _NOTHING


class LogSettings:
    """The log settings of this process (see `core.server.LogControl`); `install` makes them."""

    def __init__(self, handler: logging.Handler, values: _Values) -> None:
        self._handler = handler
        handler.addFilter(self._is_enabled)
        self._apply(values)

    @classmethod
    def install(cls, options: LogOptions) -> LogSettings:
        """Send what is logged below `naiad` to stderr or the file, in place of where an earlier call sent it.

        Raises INVALID_ARGUMENT when the file can't be opened or the format isn't known.
        """
        _check_format("--log-format", options.log_format)
        handler = _open(options.log_file)
        values = _Values(
            options.log_file,
            options.log_info,
            options.log_warning,
            options.log_error,
            options.log_verbose,
            options.log_format,
        )
        settings = cls(handler, values)
        logger = logging.getLogger(LOGGER_NAME)
        for former in list(logger.handlers):
            if isinstance(former.formatter, LineFormatter):
                _remove(former)
        logger.addHandler(handler)
        logger.propagate = False
        return settings

    def close(self) -> None:
        """Undo `install`: the logger is as it was, the file is closed."""
        _remove(self._handler)
        logger = logging.getLogger(LOGGER_NAME)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)

    def get(self) -> dict[str, Any]:
        """Return all settings as the logging extension names them."""
        return asdict(self._values)

    def update(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change the settings that are given and not None, all or none, and return all.

        Raises UNIMPLEMENTED for a log file, INVALID_ARGUMENT for a member that isn't known or has a wrong type or value.
        """
        changes = {name: value for name, value in settings.items() if _is_change(name, value)}
        self._apply(replace(self._values, **changes))
        return self.get()

    def _apply(self, values: _Values) -> None:
        self._values = values
        self._handler.setFormatter(LineFormatter(values.log_format))
        logging.getLogger(LOGGER_NAME).setLevel(values.lowest_enabled())

    def _is_enabled(self, record: logging.LogRecord) -> bool:
        return self._values.is_enabled(record.levelno)


def _open(log_file: str) -> logging.Handler:
    if not log_file:
        return logging.StreamHandler()
    try:
        # Text that isn't valid Unicode mustn't lose a line.
        return logging.FileHandler(Path(log_file), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise invalid_argument(f"--log-file is '{log_file}', which can't be opened: {error.strerror}") from error


def _remove(handler: logging.Handler) -> None:
    logging.getLogger(LOGGER_NAME).removeHandler(handler)
    handler.close()


def _is_change(name: str, value: Any) -> bool:
    """Return whether a member changes something: None doesn't. Raises InferenceServerError for one that isn't allowed."""
    if name not in _Values.__slots__:
        raise invalid_argument(f"log setting {reprlib.repr(name)} isn't known, must be one of {', '.join(_Values.__slots__)}")
    if value is None:
        return False
    if name == "log_file":
        raise unimplemented("log_file can't be changed while the server runs; it is set by --log-file")
    if name == "log_format":
        _check_format(name, value)
    elif name == "log_verbose_level":
        if type(value) is not int or value < 0:
            raise _wrong(name, value, "a whole number >= 0")
    elif type(value) is not bool:
        raise _wrong(name, value, "true or false")
    return True


def _check_format(name: str, value: Any) -> None:
    if value not in LOG_FORMATS:
        raise _wrong(name, value, f"one of {', '.join(LOG_FORMATS)}")


def _wrong(name: str, value: Any, allowed: str) -> InferenceServerError:
    return invalid_argument(f"{name} is {reprlib.repr(value)}, must be {allowed}")

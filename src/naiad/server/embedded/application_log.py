"""The log of a server inside a program: the program's own.

Owns what the logging extension shows of it. Lines go to the standard library's logger `naiad`, which the program may configure.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from naiad.errors import unimplemented
from naiad.observability.logs import LOGGER_NAME


class ApplicationLog:
    """See `core.server.LogControl`: shows which lines the program lets through, and changes nothing."""

    def get(self) -> dict[str, Any]:
        """See `LogControl.get`."""
        logger = logging.getLogger(LOGGER_NAME)
        return {
            "log_file": "",
            "log_info": logger.isEnabledFor(logging.INFO),
            "log_warning": logger.isEnabledFor(logging.WARNING),
            "log_error": logger.isEnabledFor(logging.ERROR),
            "log_verbose_level": max(0, logging.DEBUG + 1 - logger.getEffectiveLevel()),
            "log_format": "default",
        }

    def update(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """See `LogControl.update`. Raises UNIMPLEMENTED for any change."""
        if any(value is not None for value in settings.values()):
            raise unimplemented("this server is part of a Python program, which owns the log settings")
        return self.get()

"""`EnvironmentSettings`: what the operator says about the environments of Python models.

Owns the keys under which flags reach a backend, beside what `--backend-config` gives it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from naiad.config.options import ServerOptions
from naiad.errors import invalid_argument

ALLOW_REQUIREMENTS = "allow-model-requirements"
CACHE_DIRECTORY = "environment-cache-directory"
TIMEOUT = "environment-timeout-secs"
ENVIRONMENT_SETTINGS = (ALLOW_REQUIREMENTS, CACHE_DIRECTORY, TIMEOUT)

_BOOLS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """`cache_directory` holds the environments that the server makes; `timeout_s` is for making one, in seconds."""

    cache_directory: Path
    allows_requirements: bool = False
    timeout_s: float = 1800.0

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> EnvironmentSettings:
        """Read a backend's settings. Raises INVALID_ARGUMENT for a wrong value."""
        return cls(
            Path(settings.get(CACHE_DIRECTORY) or _default_cache_directory()),
            _bool(settings.get(ALLOW_REQUIREMENTS, "false")),
            _seconds(settings.get(TIMEOUT, "1800")),
        )


def with_environment_flags(options: ServerOptions) -> dict[str, Mapping[str, str]]:
    """Return the settings of all backends by name ("" is all of them), with the flags about environments among them."""
    flags = {ALLOW_REQUIREMENTS: str(options.allow_model_requirements).lower()}
    if options.environment_cache_directory is not None:
        flags[CACHE_DIRECTORY] = str(options.environment_cache_directory.absolute())
    return {**options.backend_config, "": {**options.backend_config.get("", {}), **flags}}


def _default_cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    folder = Path(base) if base.startswith("/") else Path("~/.cache").expanduser()
    return folder / "naiad" / "environments"


def _bool(text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise invalid_argument(f"--backend-config {ALLOW_REQUIREMENTS} is '{text}', must be true or false")
    return _BOOLS[text.lower()]


def _seconds(text: str) -> float:
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9 and int(text)):
        raise invalid_argument(f"--backend-config {TIMEOUT} is '{text}', must be a whole number of seconds, at least 1")
    return float(text)

"""A Python model's own limits, out of its config's parameters.

Owns the parameters' names and ranges.
"""

from __future__ import annotations

from collections.abc import Mapping

from naiad.errors import invalid_argument
from naiad.execution.process.context import WorkerLimits

TIMEOUT = "execution_timeout_ms"
ALLOW_OVERRIDE = "allow_execution_timeout_override"
MEMORY = "worker_memory_limit_mb"
RETRY = "retry_on_worker_death"

_MAX_NUMBER = 10**9
_MAX_DIGITS = 18
_TRUTHS = {"0": False, "1": True, "false": False, "true": True}


def limits_of(parameters: Mapping[str, str], model_name: str) -> WorkerLimits:
    """Return the limits. Raises INVALID_ARGUMENT for a value that isn't allowed."""

    def number(name: str) -> int:
        text = parameters.get(name, "0")
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS) or int(text) > _MAX_NUMBER:
            raise invalid_argument(
                f"model '{model_name}': parameter '{name}' is '{text}', must be a whole number from 0 (none) to {_MAX_NUMBER}"
            )
        return int(text)

    def truth(name: str) -> bool:
        text = parameters.get(name, "0").lower()
        if text not in _TRUTHS:
            raise invalid_argument(f"model '{model_name}': parameter '{name}' is '{text}', must be 0 or 1")
        return _TRUTHS[text]

    return WorkerLimits(number(TIMEOUT) / 1000, truth(ALLOW_OVERRIDE), number(MEMORY) << 20, truth(RETRY))

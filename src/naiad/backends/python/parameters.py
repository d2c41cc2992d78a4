"""The parameters of a model's config that the Python backend knows.

Owns their names and which values are right.
"""

from __future__ import annotations

from naiad.backends.base import ModelFiles
from naiad.errors import invalid_argument

ENVIRONMENT = "EXECUTION_ENV_PATH"
CPU_ONLY = "FORCE_CPU_ONLY_INPUT_TENSORS"


def check(files: ModelFiles) -> None:
    """Raise INVALID_ARGUMENT for a value that isn't allowed. Inputs are in CPU memory whatever `CPU_ONLY` says."""
    value = files.parameters.get(CPU_ONLY, "yes")
    if value not in ("yes", "no"):
        raise invalid_argument(f"model '{files.model_name}': parameter '{CPU_ONLY}' is '{value}', must be 'yes' or 'no'")

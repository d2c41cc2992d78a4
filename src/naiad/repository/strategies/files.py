"""Where a model's batch strategy lies, if it has one.

Owns the places and what is refused there. Reads and runs nothing: `importing` does.
"""

from __future__ import annotations

from pathlib import Path

from naiad.config.findings import Finding, refuse
from naiad.config.plan import ModelPlan
from naiad.errors import invalid_argument

PATH_PARAMETER = "TRITON_BATCH_STRATEGY_PATH"
FILE_NAME = "batchstrategy.py"
LIBRARY_NAME = "batchstrategy.so"

_WANTED = "a Python file with a class BatchStrategy"


def strategy_file(plan: ModelPlan) -> Path | None:
    """Return the file that the parameter names, else `batchstrategy.py` of the version's or the model's folder, None without.

    Raises INVALID_ARGUMENT for a path outside of the model's folder, a shared library, and a model without dynamic batching.
    """
    path = _named(plan) if PATH_PARAMETER in plan.parameters else _found(plan)
    if path is not None and plan.dynamic_batching is None:
        raise invalid_argument(
            f"model '{plan.name}' has the batch strategy {path}, which needs dynamic_batching in the configuration: add "
            "'dynamic_batching { }', or take the strategy away"
        )
    return path


def _named(plan: ModelPlan) -> Path:
    text = plan.parameters[PATH_PARAMETER]
    folder = plan.directory.resolve()
    path = folder / text
    problem = ""
    if not text.endswith(".py"):
        problem = f"must name {_WANTED} in the model's folder (shared libraries aren't supported)"
    elif not _is_file(path):
        problem = f"there is no such file in {plan.directory}"
    elif not path.resolve().is_relative_to(folder):
        problem = f"lies outside of the model's folder {plan.directory}"
    if problem:
        text = f"model '{plan.name}': parameter '{PATH_PARAMETER}' is '{text}', {problem}"
        refuse([Finding(text, ("parameters", PATH_PARAMETER))])
    return path


def _found(plan: ModelPlan) -> Path | None:
    for folder in (plan.version_directory, plan.directory):
        if _is_file(folder / FILE_NAME):
            return folder / FILE_NAME
        if plan.dynamic_batching is not None and _is_file(folder / LIBRARY_NAME):
            raise invalid_argument(
                f"model '{plan.name}' has the batch strategy {folder / LIBRARY_NAME}, but shared libraries aren't supported: "
                f"write it as {FILE_NAME}, {_WANTED}"
            )
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except ValueError:  # A NUL character in the parameter.
        return False

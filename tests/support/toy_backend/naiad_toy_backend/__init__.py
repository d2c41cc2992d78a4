"""A backend from another package, as its author would write it: y = x · factor, the factor being the text of the model file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from naiad.backends.base import Array, BackendInstance, ModelFiles
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.config.signature import ModelSignature, TensorSignature
from naiad.errors import invalid_argument


class ToyBackend:
    """See `naiad.backends.base.Backend`."""

    name: ClassVar[str] = "toy"
    releases_gil: ClassVar[bool] = False
    default_instance_count: ClassVar[int] = 1

    @classmethod
    def signature(cls, files: ModelFiles) -> ModelSignature | None:
        """Every toy model has one input and one output."""
        _read_factor(files)
        return ModelSignature((TensorSignature("x", "FP32", (-1, -1)),), (TensorSignature("y", "FP32", (-1, -1)),))

    @classmethod
    def load(cls, plan: ModelPlan, instance: InstancePlan, files: ModelFiles) -> BackendInstance:
        """Read the factor."""
        return _ToyInstance(_read_factor(files))

    @classmethod
    def must_run_in_place(cls, plan: ModelPlan) -> bool:
        """One multiplication may be long."""
        return False


class _ToyInstance:
    def __init__(self, factor: float) -> None:
        self._factor = factor

    def execute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Multiply."""
        return {"y": inputs["x"] * inputs["x"].dtype.type(self._factor)}

    def close(self) -> None:
        """Nothing is held."""


def _read_factor(files: ModelFiles) -> float:
    try:
        return float(files.path.read_text())
    except (OSError, ValueError) as error:
        raise invalid_argument(f"model '{files.model_name}': '{files.path}' is no toy model: {error}") from error

"""What a model file tells of its own tensors: the input of auto-complete. A backend reads it, `config` completes with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorSignature:
    """One input or output as the model file itself describes it.

    `datatype` is the protocol's name (FP32, BYTES); `shape` is whole, with -1 for every size that isn't fixed.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """The tensors of a model file, in the file's order."""

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]

    @property
    def supports_batching(self) -> bool:
        """Whether every tensor's first dim is variable, so that requests can be joined along it."""
        return all(tensor.shape[:1] == (-1,) for tensor in self.inputs + self.outputs)

"""Each backend keeps the contract: a class each."""

from __future__ import annotations

from pathlib import Path

import onnx_models
import plans
import pytest
import toy_backend_package
from backend_contract import BackendContract, Example

from naiad.backends.base import ModelFiles
from naiad.backends.identity.backend import IdentityBackend
from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.backends.table import BackendTable


class TestOnnxRuntime(BackendContract):
    backend = OnnxRuntimeBackend

    def example(self, folder: Path) -> Example:
        path = onnx_models.save(onnx_models.sum_and_difference(), folder / "model.onnx")
        inputs = [plans.tensor(name, "FP32", [4], 8) for name in ("a", "b")]
        outputs = [plans.tensor(name, "FP32", [4], 8) for name in ("sum", "difference")]
        return Example(plans.plan(inputs, outputs, 8), ModelFiles("m", path))


class TestOnnxRuntimeWithStrings(BackendContract):
    backend = OnnxRuntimeBackend

    def example(self, folder: Path) -> Example:
        path = onnx_models.save(onnx_models.identity("BYTES", ["n", "m"]), folder / "model.onnx")
        return Example(_one_to_one("BYTES"), ModelFiles("m", path))


class TestOnnxRuntimeWithBfloat16(BackendContract):
    backend = OnnxRuntimeBackend

    def example(self, folder: Path) -> Example:
        path = onnx_models.save(onnx_models.identity("BF16", ["n", "m"]), folder / "model.onnx")
        return Example(_one_to_one("BF16"), ModelFiles("m", path))


class TestIdentity(BackendContract):
    backend = IdentityBackend
    has_model_file = False

    def example(self, folder: Path) -> Example:
        inputs = [plans.tensor("a", "FP32", [4], 8), plans.tensor("b", "BYTES", [-1], 8)]
        outputs = [plans.tensor("c", "FP32", [4], 8), plans.tensor("d", "BYTES", [-1], 8)]
        return Example(plans.plan(inputs, outputs, 8), ModelFiles("m", folder))


class TestBackendOfAnotherPackage(BackendContract):
    """The package lies on the path as pip would have installed it, and is found by its entry point."""

    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        toy_backend_package.install(monkeypatch)
        self.backend = BackendTable().find("toy")

    def example(self, folder: Path) -> Example:
        path = folder / "model.toy"
        path.write_text("3.0")
        return Example(_one_to_one("FP32"), ModelFiles("m", path))


def _one_to_one(datatype: str):
    return plans.plan([plans.tensor("x", datatype, [-1], 8)], [plans.tensor("y", datatype, [-1], 8)], 8)

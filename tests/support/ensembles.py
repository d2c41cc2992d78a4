"""Ensembles for tests: their config.pbtxt, a step a line, and small Python models for the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_folders import write_model


def tensor(name: str, datatype: str = "FP32", dims: str = "-1") -> str:
    return f'{{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ] }}'


def step(model: str, inputs: dict[str, str], outputs: dict[str, str], version: int | None = -1) -> str:
    """Return a step: the model's inputs by the ensemble's tensors, its outputs likewise."""
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    number = "" if version is None else f" model_version: {version}"
    return f'{{ model_name: "{model}"{number} {" ".join(maps)} }}'


def config(
    inputs: Sequence[str],
    outputs: Sequence[str],
    steps: Sequence[str],
    max_batch_size: int = 8,
    more: str = "",
    inside: str = "",
) -> str:
    """Return the config of an ensemble; `more` goes beside its scheduling, `inside` into it."""
    return f"""
    platform: "ensemble"
    max_batch_size: {max_batch_size}
    input [ {", ".join(inputs)} ]
    output [ {", ".join(outputs)} ]
    ensemble_scheduling {{ step [ {", ".join(steps)} ] {inside} }}
    {more}
    """


def chain(repository: Path, name: str, models: Sequence[str], max_batch_size: int = 8, more: str = "") -> Path:
    """Write an ensemble from X to Y through models that have these names themselves."""
    between = ["X", *(f"t{number}" for number in range(1, len(models))), "Y"]
    steps = [
        step(model, {"X": before}, {"Y": after}) for model, before, after in zip(models, between[:-1], between[1:], strict=True)
    ]
    text = config([tensor("X")], [tensor("Y")], steps, max_batch_size, more)
    return write_model(repository, name, text)


def python_model(repository: Path, name: str, code: str, text: str) -> Path:
    """Write a Python model whose `execute` is `code`, indented by eight, with `requests`, `np` and `pb_utils`."""
    folder = write_model(repository, name, f'backend: "python"\n{text}')
    source = f"""
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils

def array(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

def answer(parameters=None, **tensors):
    made = [pb_utils.Tensor(name, values) for name, values in tensors.items()]
    return pb_utils.InferenceResponse(made) if parameters is None else pb_utils.InferenceResponse(made, parameters=parameters)

class TritonPythonModel:
    def execute(self, requests):
{code}
"""
    (folder / "1" / "model.py").write_text(source)
    return folder


COUNTING = """
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(array(request, "N").reshape(-1)[0])):
                sender.send(answer(I=np.array([number], np.int32)))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
"""A decoupled model that answers N with 0, 1, … N-1."""

COUNTING_CONFIG = f"""
input [ {tensor("N", "INT32", "1")} ]
output [ {tensor("I", "INT32", "1")} ]
model_transaction_policy {{ decoupled: true }}
"""


def counting(repository: Path, name: str = "counting") -> Path:
    return python_model(repository, name, COUNTING, COUNTING_CONFIG)

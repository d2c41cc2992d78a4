"""The same ensembles in Naiad and in the real C++ Triton: the same answers, and errors that begin alike.

Not part of `make test`: `make conformance-triton` brings Triton onto the machine when it isn't there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ensemble_models
import pytest
import requests
from real_triton import serving_triton
from server_process import ServerProcess

pytestmark = [pytest.mark.triton, pytest.mark.timeout(300)]

ASKED: dict[str, dict[str, Any]] = {
    "fails": {},
    "outer": {},
    "halves": {"outputs": [{"name": "A"}]},
    "passing": {},
    "optional": {},
    "tells": {"id": "one", "parameters": {"sequence_id": 5, "sequence_start": True, "timeout": 9000000}},
}


def ask(url: str, model: str) -> tuple[int, Any]:
    """Return the status, and the outputs by name or the error."""
    inputs = [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1]}]
    answer = requests.post(f"{url}/v2/models/{model}/infer", json={"inputs": inputs, **ASKED[model]}, timeout=20)
    content = answer.json()
    if "error" in content:
        return answer.status_code, content["error"].split(",")[0]
    found = {output["name"]: output["data"] for output in content["outputs"]}
    if "SAID" in found:
        # Triton's wheel is too old for a model to be told of time-outs.
        said = json.loads(found["SAID"][0])
        found["SAID"] = {name: said[name] for name in ("id", "correlation", "flags", "parameters")}
    return answer.status_code, found


def test_both_answer_alike(tmp_path, serve: Callable[..., ServerProcess]) -> None:
    server = serve(ensemble_models.write_models(tmp_path / "ours"))
    ours = {model: ask(server.url, model) for model in ASKED}
    with serving_triton(tmp_path, ensemble_models.write_models) as triton:
        theirs = {model: ask(f"http://{triton.address.host}:{triton.address.port}", model) for model in ASKED}
    assert ours == theirs

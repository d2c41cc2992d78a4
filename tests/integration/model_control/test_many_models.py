"""A repository of 2,000 models: all are loaded, listed and answer, and each takes no descriptor and no thread of its own."""

from __future__ import annotations

import random

import pytest
import requests
from bench.models.many import write_many
from process_facts import facts

COUNT = 2000


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_two_thousand_models_are_ready_and_answer(tmp_path, serve, http_control):
    names = write_many(tmp_path / "models", COUNT)
    write_many(tmp_path / "few", 20)
    few = facts(serve(tmp_path / "few").pid)
    server = serve(tmp_path / "models", ready_within_s=180)
    many = facts(server.pid)
    assert (many.descriptors, many.threads) == (few.descriptors, few.threads)
    assert http_control(server).index() == [(name, "1", "READY", "") for name in names]
    assert requests.get(f"{server.url}/v2/health/ready", timeout=10).status_code == 200
    for number in [0, COUNT - 1, *random.Random(7).sample(range(COUNT), 50)]:  # a sample that is the same each time
        body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
        [output] = server.infer(f"m{number:04d}", body).json()["outputs"]
        assert output["data"] == [1 + number, 2 + number, 3 + number, 4 + number]
    assert server.stop() == 0

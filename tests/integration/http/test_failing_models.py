"""What a client sees of a model that fails: a 500 with the model's words, on this request only, and the connection goes on."""

from __future__ import annotations

import json

import pytest
from raw_http import infer, post
from scripted_models import ENVIRONMENT, ScriptedModel

WRONG = ["a_row_too_few", "a_row_too_many", "no_output", "none", "another_dtype", "another_rank", "a_list", "a_scalar"]


@pytest.fixture(scope="module")
def failing(tmp_path_factory, serve_for_module):
    repository = tmp_path_factory.mktemp("failing") / "models"
    repository.mkdir()
    ScriptedModel(repository, "raises", fail_on="7")
    for name in WRONG:
        ScriptedModel(repository, name, returns=name)
    return serve_for_module(repository, environment=ENVIRONMENT)


@pytest.mark.parametrize("end", ["infer", "generate", "generate_stream"])
def test_what_a_model_raises_is_a_500_with_its_text_and_the_connection_goes_on(failing, connect, end):
    def request(value: float) -> bytes:
        if end == "infer":
            return infer("raises", [value])
        return post(f"/v2/models/raises/{end}", json.dumps({"X": value}).encode())

    connection = connect(failing)
    for _ in range(2):
        status, headers, body = connection.send(request(7)).response()
        assert (status, headers["content-type"], headers.get("connection")) == (500, "application/json", None)
        assert "X has 7" in json.loads(body)["error"]
        assert connection.send(request(1)).response()[0] == 200


@pytest.mark.parametrize("name", WRONG)
def test_outputs_that_do_not_fit_the_config_are_a_500_that_names_the_model(failing, connect, name):
    connection = connect(failing)
    for _ in range(2):
        status, _, body = connection.send(infer(name, [1, 2], [2, 1])).response()
        assert status == 500, body
        assert f"'{name}'" in json.loads(body)["error"]

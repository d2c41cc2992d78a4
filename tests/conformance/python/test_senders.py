"""Answers by response senders, in plain models and in decoupled ones: what the client gets, and what the model is told."""

from __future__ import annotations

import re

import pytest
import requests
from python_models.asking import ask, send
from python_models.repositories import write_api_models
from python_models.said import SENT, Sent
from server_process import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory, serve_for_module) -> ServerProcess:
    return serve_for_module(write_api_models(tmp_path_factory.mktemp("models")))


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: f"{sent.model}-{sent.way}")
def test_the_client_gets_and_the_model_is_told_what_the_rules_say(server, sent: Sent):
    got = send(server.url, sent.model, sent.way)
    assert (len(got), all(map(re.match, sent.client, got))) == (len(sent.client), True), got
    (told,) = send(server.url, sent.model, "last")
    assert re.match(sent.told, told), told


def test_infer_of_a_decoupled_model_is_refused_and_the_model_never_sees_it(server):
    assert ask(server.url, "decoupled", "three").startswith("501 ")
    assert send(server.url, "decoupled", "last") == ["nothing"]


def test_the_status_of_a_stream_that_begins_with_an_error_is_that_of_its_code(server):
    response = requests.post(f"{server.url}/v2/models/decoupled/generate_stream", json={"NAME": "an_error"}, timeout=10)
    assert (response.status_code, response.json()) == (404, {"error": "no"})

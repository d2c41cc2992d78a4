"""Polling: what changes in the repositories is loaded, what is gone is unloaded, what isn't whole yet waits."""

from __future__ import annotations

import shutil

import pytest
import requests
from controlled_models import Traffic, ValueModel, http_ask
from model_folders import identity
from waiting import wait_until

POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")


@pytest.mark.timeout(60)
def test_changes_on_disk_are_taken_over_without_a_lost_request(tmp_path, serve, http_control):
    model = ValueModel(tmp_path / "models")
    server = serve(tmp_path / "models", *POLL)
    client, ask = http_control(server), http_ask(server, "ver")
    with Traffic(server, "ver", 2) as traffic:
        model.write_version(1, 2)
        wait_until(lambda: ask() == 2)
        model.write_version(2, 3)
        wait_until(lambda: ask() == 3)
        model.break_version(3)
        wait_until(lambda: client.states("ver").get("3") == "UNAVAILABLE")
        traffic.wait_round()
    assert traffic.failures == []
    assert all(answers == sorted(answers) for answers in traffic.answers)
    assert any("failed to load 'ver'" in line for line in server.errors)


def test_folders_that_come_and_go_are_loaded_and_unloaded(tmp_path, serve, http_control):
    models = tmp_path / "models"
    models.mkdir()
    server = serve(models, *POLL)
    client = http_control(server)
    identity(tmp_path / "elsewhere", "late")
    shutil.move(tmp_path / "elsewhere" / "late", models / "late")
    wait_until(lambda: client.states("late") == {"1": "READY"})
    shutil.rmtree(models / "late")
    wait_until(lambda: client.states("late") == {"1": "UNAVAILABLE"})
    assert requests.get(f"{server.url}/v2/health/ready", timeout=5).status_code == 200
    assert http_control(server).states("late") == {"1": "UNAVAILABLE"}


def test_a_model_that_is_in_two_repositories_is_unloaded_and_the_index_says_why(tmp_path, serve, http_control):
    for folder in ("first", "second"):
        identity(tmp_path / folder, "other" if folder == "second" else "echo")
    server = serve(tmp_path / "first", tmp_path / "second", *POLL)
    client = http_control(server)
    identity(tmp_path / "second", "echo")
    wait_until(lambda: client.index("echo") == [("echo", "", "UNAVAILABLE", "model appears in two or more repositories")])
    shutil.rmtree(tmp_path / "second" / "echo")
    wait_until(lambda: client.states("echo") == {"1": "READY"})


def test_a_repository_that_vanishes_unloads_nothing(tmp_path, serve, http_control):
    identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", *POLL)
    (tmp_path / "models").rename(tmp_path / "away")
    wait_until(lambda: any("can't be looked at" in line for line in server.errors))
    assert http_ask(server, "echo")() == 1

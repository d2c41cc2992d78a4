"""Polling: what changes in the repositories is loaded, what is gone is unloaded, what isn't whole yet waits."""

from __future__ import annotations

import shutil
import time

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


NEVER_BY_ITSELF = ("--model-control-mode=poll", "--repository-poll-secs=3600", "--repository-settle-secs=1")


def test_changes_on_local_disks_are_heard_of_without_a_look_of_their_own(tmp_path, serve, http_control):
    models = tmp_path / "models"
    identity(models, "echo")
    server = serve(models, *NEVER_BY_ITSELF)
    client = http_control(server)
    identity(tmp_path / "made", "late")
    (tmp_path / "made" / "late").rename(models / "late")
    wait_until(lambda: client.states("late") == {"1": "READY"})
    identity(models, "late", more="version_policy { all {} }")
    (models / "late" / "2").mkdir()
    wait_until(lambda: client.states("late") == {"1": "READY", "2": "READY"})
    shutil.rmtree(models / "late")
    wait_until(lambda: set(client.states("late").values()) == {"UNAVAILABLE"})
    assert client.states("echo") == {"1": "READY"}


@pytest.mark.timeout(60)
def test_a_model_that_is_still_being_copied_waits_however_long_that_takes(tmp_path, serve, http_control):
    models = tmp_path / "models"
    models.mkdir()
    server = serve(models, *NEVER_BY_ITSELF)
    client = http_control(server)
    model = ValueModel(tmp_path / "made", "slow")  # its instances write to tmp_path, as those of the copy do
    (models / "slow" / "1").mkdir(parents=True)
    shutil.copy(model.folder / "config.pbtxt", models / "slow")
    end = time.monotonic() + 3
    with (models / "slow" / "1" / "weights.bin").open("wb") as file:
        while time.monotonic() < end:
            file.write(b"w" * 1000)
            file.flush()
            # The pace of a copy, below the time after which the folder would count as settled.
            time.sleep(0.1)
    shutil.copy(model.folder / "1" / "model.py", models / "slow" / "1")
    shutil.copy(model.folder / "1" / "value.txt", models / "slow" / "1")
    wait_until(lambda: client.states("slow") == {"1": "READY"})
    assert model.begun() == ["slow_0"]
    assert not any("failed to load" in line for line in server.errors)


def test_thousands_of_changes_are_one_reload(tmp_path, serve, http_control):
    models = tmp_path / "models"
    identity(models, "echo")
    server = serve(models, *NEVER_BY_ITSELF)
    for number in range(5000):
        (models / "echo" / "1" / f"{number}.bin").touch()
    wait_until(lambda: any("'echo' is new or has changed" in line for line in server.errors))
    (models / "echo" / "1" / "later.bin").write_text("x")
    wait_until(lambda: sum("'echo' is new or has changed" in line for line in server.errors) == 2)
    assert http_ask(server, "echo")() == 1


def test_a_repository_whose_disk_has_gone_unloads_nothing_and_the_others_are_followed(tmp_path, serve, http_control):
    """An empty folder is left where a disk was; one that is emptied model by model is another matter."""
    identity(tmp_path / "models", "echo")
    identity(tmp_path / "other", "near")
    server = serve(tmp_path / "models", tmp_path / "other", *POLL)
    client = http_control(server)
    (tmp_path / "models").rename(tmp_path / "away")
    (tmp_path / "models").mkdir()
    wait_until(lambda: any("is empty and another folder than before" in line for line in server.errors))
    identity(tmp_path / "made", "late")
    (tmp_path / "made" / "late").rename(tmp_path / "other" / "late")
    wait_until(lambda: client.states("late") == {"1": "READY"})
    assert http_ask(server, "echo")() == 1
    assert sum("can't be looked at" in line for line in server.errors) == 1
    (tmp_path / "models").rmdir()
    (tmp_path / "away").rename(tmp_path / "models")
    wait_until(lambda: any("can be looked at again" in line for line in server.errors))
    shutil.rmtree(tmp_path / "models" / "echo")
    wait_until(lambda: client.states("echo") == {"1": "UNAVAILABLE"})


def test_a_repository_that_vanishes_unloads_nothing(tmp_path, serve, http_control):
    identity(tmp_path / "models", "echo")
    server = serve(tmp_path / "models", *POLL)
    (tmp_path / "models").rename(tmp_path / "away")
    wait_until(lambda: any("can't be looked at" in line for line in server.errors))
    assert http_ask(server, "echo")() == 1

"""Models out of an S3-compatible store: served, followed, and never half there."""

from __future__ import annotations

import subprocess
import sys

import pytest
import requests
from model_folders import identity
from server_process import ServerProcess, failed_start

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def url(s3_port: int) -> str:
    return f"s3://127.0.0.1:{s3_port}/bucket/models"


@pytest.fixture
def upload(bucket, tmp_path):
    """Put a model into the store, under a name of its own."""

    def put(name: str) -> None:
        folder = identity(tmp_path / "made", name)
        bucket.pipe_file(f"bucket/models/{name}/config.pbtxt", (folder / "config.pbtxt").read_bytes())
        bucket.pipe_file(f"bucket/models/{name}/1/weights.bin", b"w" * 100_000)

    return put


def index(server) -> set[tuple[str, str]]:
    found = requests.post(f"{server.url}/v2/repository/index", timeout=10).json()
    return {(model["name"], model["state"]) for model in found}


def test_models_of_a_store_are_served_beside_local_ones(tmp_path, serve, upload, url):
    upload("far")
    identity(tmp_path / "local", "near")
    server = serve(f"--model-repository={url}", tmp_path / "local", f"--model-cache-directory={tmp_path / 'cache'}")
    assert index(server) == {("far", "READY"), ("near", "READY")}
    assert "model 'far': copying 2 of 2 files" in server.log()


def test_the_data_of_samples_comes_with_the_model(serve, bucket, url, tmp_path):
    inputs = 'inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "x" } }'
    folder = identity(tmp_path / "made", "warm", more=f'model_warmup {{ name: "w" batch_size: 1 {inputs} }}')
    bucket.pipe_file("bucket/models/warm/config.pbtxt", (folder / "config.pbtxt").read_bytes())
    bucket.pipe_file("bucket/models/warm/1/weights.bin", b"w")
    without = ServerProcess(url, f"--model-cache-directory={tmp_path / 'first'}")
    assert without.wait() == 1
    assert "model_warmup sample 'w' of model 'warm'" in without.log()
    bucket.pipe_file("bucket/models/warm/warmup/x", bytes(8))
    server = serve(url, f"--model-cache-directory={tmp_path / 'cache'}")
    assert index(server) == {("warm", "READY")}


def test_a_second_start_fetches_nothing(tmp_path, serve, upload, url):
    upload("far")
    cache = f"--model-cache-directory={tmp_path / 'cache'}"
    serve(url, cache).stop()
    server = serve(url, cache)
    assert index(server) == {("far", "READY")}
    assert "copying" not in server.log()


def test_a_load_at_run_time_takes_what_the_store_has_now(tmp_path, serve, upload, url, bucket):
    upload("first")
    flags = ("--model-control-mode=explicit", "--load-model=first", f"--model-cache-directory={tmp_path / 'cache'}")
    server = serve(url, *flags)
    upload("second")
    loaded = requests.post(f"{server.url}/v2/repository/models/second/load", timeout=20)
    assert (loaded.status_code, loaded.text) == (200, "")
    bucket.rm("bucket/models/first", recursive=True)
    gone = requests.post(f"{server.url}/v2/repository/models/first/load", timeout=20)
    assert gone.status_code == 500
    assert "failed to poll from model repository" in gone.json()["error"]
    assert ("second", "READY") in index(server)


def test_a_store_that_is_not_there_is_named(tmp_path):
    refused = failed_start("s3://127.0.0.1:1/bucket/models", f"--model-cache-directory={tmp_path / 'cache'}")
    assert "model repository 's3://127.0.0.1:1/bucket/models': can't be listed" in refused


def test_a_folder_that_is_not_there_is_named(tmp_path, bucket, url):
    refused = failed_start(url, f"--model-cache-directory={tmp_path / 'cache'}")
    assert f"model repository '{url}' does not exist or has nothing in it" in refused


def test_models_of_a_web_server_are_followed(tmp_path, serve):
    folder = identity(tmp_path / "web", "far")
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path / "web")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as web:
        try:
            assert web.stdout is not None
            port = web.stdout.readline().split("port ")[1].split()[0]
            flags = ("--model-control-mode=explicit", "--load-model=far", f"--model-cache-directory={tmp_path / 'cache'}")
            server = serve(f"http://127.0.0.1:{port}/", *flags)
            with (folder / "config.pbtxt").open("a") as config:
                config.write('parameters { key: "changed" value { string_value: "yes" } }')
            assert requests.post(f"{server.url}/v2/repository/models/far/load", timeout=20).status_code == 200
            shown = requests.get(f"{server.url}/v2/models/far/config", timeout=10).json()
            assert shown["parameters"]["changed"] == {"string_value": "yes"}
        finally:
            web.kill()

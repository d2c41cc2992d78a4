"""A command line that can't be served ends at once with code 1 and says what is wrong: the flag, its value, what is allowed."""

from __future__ import annotations

import re

import pytest
from model_folders import identity
from server_process import failed_start


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--htp-port=1"], ["--htp-port", "did you mean --http-port"]),
        (["--http-port=banana"], ["--http-port", "'banana'", "0 to 65535"]),
        (["--exit-timeout-secs=-1"], ["--exit-timeout-secs", "'-1'", "at least 0"]),
        (["--strict-readiness=perhaps"], ["--strict-readiness", "'perhaps'", "true"]),
        (["--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"], ["nothing to serve"]),
        (["--http-port=18123", "--metrics-port=18123"], ["same address and port 127.0.0.1:18123"]),
        (["--http-port=18123", "--grpc-port=18123"], ["same address and port 127.0.0.1:18123"]),
        (["--grpc-header-forward-pattern=(", "--http-port=0", "--grpc-port=0", "--metrics-port=0"], ["--grpc-header-forward"]),
        (["--http-address=unix:/x", "--grpc-address=unix:/x"], ["same address and port unix:/x", "--one-port"]),
        (["--http-address=unix:"], ["'unix:'", "path of the socket"]),
        (["--http-address=unix:/none/naiad.sock"], ["can't listen at 'unix:/none/naiad.sock'", "No such file"]),
        (["--http-address=unix:/" + "x" * 107], ["1 to 107 bytes"]),
        (["--one-port=true", "--allow-grpc=false"], ["--one-port", "--allow-grpc"]),
        (["--http-address=192.0.2.1", "--http-port=0"], ["192.0.2.1", "Cannot assign"]),
    ],
    ids=lambda value: value[0].lstrip("-") if isinstance(value, list) else None,
)
def test_a_bad_flag_is_named(tmp_path, flags, words):
    identity(tmp_path, "echo")
    text = failed_start(tmp_path, *flags)
    assert [word for word in words if word not in text] == [], text


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    text = failed_start(tmp_path / "notes.txt")
    assert re.search(r"notes\.txt' is not a model file .* \.onnx", text)


def test_a_service_that_isnt_wanted_has_no_port(tmp_path, serve):
    identity(tmp_path, "echo")
    server = serve(tmp_path, "--allow-metrics=false")
    assert (bool(server.http), bool(server.metrics)) == (True, False)
    assert server.stop() == 0

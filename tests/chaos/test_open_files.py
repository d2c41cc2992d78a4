"""The limit of open files that a server is started with is no limit of its connections, as long as the system allows more."""

from __future__ import annotations

import resource

import pytest
from model_folders import identity
from raw_http import infer
from waiting import wait_until

LOW = 100
CONNECTIONS = 150


def test_the_limit_is_raised_to_what_the_connections_need(tmp_path, serve, connect):
    identity(tmp_path, "echo")
    server = serve(tmp_path, open_files=LOW)
    clients = [connect(server).send(infer("echo", [1])) for _ in range(CONNECTIONS)]
    assert [client.response()[0] for client in clients] == [200] * CONNECTIONS


def test_a_limit_that_is_too_low_is_said(tmp_path, serve):
    identity(tmp_path, "echo")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system has no limit of open files")
    server = serve(tmp_path, f"--http-max-connections={hard + 1}")
    wait_until(lambda: f"the system allows {hard} open files" in server.log())
    assert server.stop() == 0

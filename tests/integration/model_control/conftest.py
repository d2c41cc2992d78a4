"""Clients of a server whose models are controlled, by HTTP and by gRPC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tritonclient.grpc
import tritonclient.http
from server_process import ServerProcess


class Control:
    """Triton's client of one protocol; the index as dicts, whatever the protocol makes of it."""

    def __init__(self, server: ServerProcess, protocol: str) -> None:
        self.is_http = protocol == "http"
        module: Any = tritonclient.http if self.is_http else tritonclient.grpc
        address = server.http if self.is_http else server.grpc
        self.client = server.clients.enter_context(module.InferenceServerClient(address))
        self.load = self.client.load_model
        self.unload = self.client.unload_model
        self.is_ready = self.client.is_model_ready

    def index(self, name: str = "") -> list[tuple[str, str, str, str]]:
        answer = self.client.get_model_repository_index()
        entries = (
            answer
            if self.is_http
            else [
                {"name": model.name, "version": model.version, "state": model.state, "reason": model.reason}
                for model in answer.models
            ]
        )
        lines = [tuple(entry.get(key, "") for key in ("name", "version", "state", "reason")) for entry in entries]
        return [line for line in lines if name in ("", line[0])]

    def states(self, name: str) -> dict[str, str]:
        return {version: state for _, version, state, _ in self.index(name)}


@pytest.fixture(params=["http", "grpc"])
def control(request) -> Callable[[ServerProcess], Control]:
    return lambda server: Control(server, request.param)


@pytest.fixture
def http_control() -> Callable[[ServerProcess], Control]:
    return lambda server: Control(server, "http")

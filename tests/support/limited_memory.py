"""Servers whose memory holds some of their models only, and what they say of it."""

from __future__ import annotations

from pathlib import Path

import requests
from controlled_models import ValueModel
from scripted_models import ScriptedModel
from server_process import ServerProcess

MEGABYTE = 1_000_000
TWO_OF_THREE = "--model-memory-limit=250MB"


def declared(megabytes: int = 100) -> str:
    """Return the part of a config that says what a model takes."""
    return f'parameters {{ key: "memory_bytes" value {{ string_value: "{megabytes}MB" }} }}'


def value_models(models: Path, *names: str, sleep_s: float = 0) -> list[ValueModel]:
    """Write Python models of 100 MB each, which answer with 1, 2, 3 and so on."""
    made = [ValueModel(models, name, sleep_s, value) for value, name in enumerate(names, 1)]
    for model in made:
        model.write_config(declared())
    return made


def scripted_models(models: Path, *names: str) -> list[ScriptedModel]:
    """Write models of the test's own backend of 100 MB each."""
    return [ScriptedModel(models, name, memory_bytes="100MB") for name in names]


def resident(server: ServerProcess, *names: str) -> list[str]:
    """Return which of the models are in memory."""
    return [name for name in names if server.metric("naiad_model_memory_bytes", model=name)]


def demand_loads(server: ServerProcess, *names: str) -> list[float]:
    """Return how often each model was loaded at a request."""
    return [server.metric("naiad_model_demand_loads_total", model=name) for name in names]


def evictions(server: ServerProcess, *names: str) -> list[float]:
    """Return how often each model was unloaded to make room."""
    return [server.metric("naiad_model_evictions_total", model=name) for name in names]


def reason(server: ServerProcess, name: str) -> str:
    """Return what the repository index says of a model that is READY."""
    lines = requests.post(f"{server.url}/v2/repository/index", json={}, timeout=10).json()
    (line,) = [line for line in lines if line["name"] == name]
    assert line["state"] == "READY", line
    return line.get("reason", "")

"""Asks the probes of the model API, in Naiad and in Triton alike."""

from __future__ import annotations

import json

import requests

TIMEOUT_S = 10


def ask(url: str, area: str, probe: str) -> str:
    """Return what the probe says; a request that fails is text of it too."""
    tensor = {"name": "NAME", "datatype": "BYTES", "shape": [1], "data": [probe]}
    body = {"id": "id7", "parameters": {"alpha": 1}, "inputs": [tensor]}
    response = requests.post(f"{url}/v2/models/{area}/infer", json=body, timeout=TIMEOUT_S)
    if response.status_code != 200:
        return f"{response.status_code} {response.text}"
    return response.json()["outputs"][0]["data"][0]


def send(url: str, model: str, way: str) -> list[str]:
    """Return what comes of a way to send, text by text: an error stands as "error: …"."""
    if model == "senders":
        text = ask(url, model, way)
        return [f"error: {json.loads(text[4:])['error']}" if text.startswith(("4", "5")) else text]
    response = requests.post(f"{url}/v2/models/{model}/generate_stream", json={"NAME": way}, timeout=TIMEOUT_S)
    text = response.text if response.text.startswith("data: ") or not response.text else f"data: {response.text}"
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    return [f"error: {event['error']}" if "error" in event else event["SAID"] for event in events]


def fits(said: str, expected: str) -> bool:
    """Return whether `said` is `expected`, or begins so when that ends with …"""
    return said.startswith(expected[:-1]) if expected.endswith("…") else said == expected

"""Several requests that run as one batch: the model's batcher waits for as many as it prefers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from server_process import ServerProcess


def batching_of(count: int) -> str:
    """Return the config of a batcher that runs `count` requests together, and fewer only after 10 s."""
    return f"dynamic_batching {{ preferred_batch_size: {count} max_queue_delay_microseconds: 10000000 }}"


def tensor(name: str, datatype: str, shape: Sequence[int], *data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": list(data)}


def ask(server: ServerProcess, model: str, *inputs: dict[str, Any], **more: Any) -> tuple[int, Any]:
    """Return status and the outputs' data by name, or the error's text."""
    response = server.infer(model, {"inputs": inputs, **more})
    content = response.json()
    if response.status_code != 200:
        return response.status_code, content["error"]
    return 200, {output["name"]: output["data"] for output in content["outputs"]}


def ask_at_once(server: ServerProcess, model: str, *requests: Sequence[dict[str, Any]]) -> list[tuple[int, Any]]:
    """Send the requests' inputs from a thread each; return the answers in their order."""
    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(lambda inputs: ask(server, model, *inputs), requests))

"""Send many small requests at once and see that the server ran them together: fewer executions than requests.

python examples/clients/batched.py [HOST:PORT]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tritonclient.http as triton
from file_type import SAMPLES, features

CLIENTS = 16
REQUESTS_EACH = 3


def main(url: str) -> None:
    """Send 48 requests of one item each, from 16 clients at once; check each answer and the model's statistics."""
    before = statistics(url)
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(send, [url] * CLIENTS))
    after = statistics(url)
    requests = after["inference_count"] - before["inference_count"]
    executions = after["execution_count"] - before["execution_count"]
    print(f"{requests} requests ran in {executions} executions, all answers right")
    assert requests == CLIENTS * REQUESTS_EACH
    assert executions < requests, "nothing was batched"


def send(url: str) -> None:
    """Ask about a few samples, one request after the other; a client of its own, since Triton's isn't for several threads."""
    wanted = triton.InferRequestedOutput("target_label", class_count=1)
    with triton.InferenceServerClient(url) as client:
        for kind in list(SAMPLES)[:REQUESTS_EACH]:
            item = features(SAMPLES[kind])[np.newaxis]
            request = triton.InferInput("bytes", item.shape, "INT32")
            request.set_data_from_numpy(item)
            result = client.infer("file_type", [request], outputs=[wanted])
            best = result.as_numpy("target_label")[0][0].decode()
            assert best.endswith(f":{kind}"), f"expected {kind}, got {best}"


def statistics(url: str) -> Any:
    """Return the statistics of the only version of `file_type`."""
    with triton.InferenceServerClient(url) as client:
        return client.get_inference_statistics("file_type")["model_stats"][0]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")

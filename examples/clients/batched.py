"""Send many small requests at once and see that the server ran them together: fewer executions than requests.

python examples/clients/batched.py [HOST:PORT]
"""

from __future__ import annotations

import sys

import numpy as np
import tritonclient.http as triton
from file_type import SAMPLES, features

COUNT = 48


def main(url: str) -> None:
    """Send 48 requests of one item each over 16 connections; check each answer and the model's statistics."""
    kinds = [list(SAMPLES)[index % len(SAMPLES)] for index in range(COUNT)]
    wanted = triton.InferRequestedOutput("target_label", class_count=1)
    with triton.InferenceServerClient(url, concurrency=16, max_greenlets=16) as client:
        before = client.get_inference_statistics("file_type")["model_stats"][0]
        pending = []
        for kind in kinds:
            item = features(SAMPLES[kind])[np.newaxis]
            request = triton.InferInput("bytes", item.shape, "INT32")
            request.set_data_from_numpy(item)
            pending.append(client.async_infer("file_type", [request], outputs=[wanted]))
        for kind, answer in zip(kinds, pending):
            best = answer.get_result().as_numpy("target_label")[0][0].decode()
            assert best.endswith(f":{kind}"), f"expected {kind}, got {best}"
        after = client.get_inference_statistics("file_type")["model_stats"][0]
    executions = after["execution_count"] - before["execution_count"]
    print(f"{COUNT} requests ran in {executions} executions, all answers right")
    assert after["inference_count"] - before["inference_count"] == COUNT
    assert executions < COUNT, "nothing was batched"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")

"""Send texts of very different lengths at once: `python client.py localhost:8001` (the gRPC port)."""

from __future__ import annotations

import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton

LIMIT = 1000
LENGTHS = [10, 400, 20, 30, 900, 5, 500, 40, 1500, 15] * 4


def main(address: str) -> int:
    """Return the exit code: 0 when every answer is right and no batch was above the limit, but for requests that are alone."""
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    with triton.InferenceServerClient(address) as client:
        for length in LENGTHS:
            tensor = triton.InferInput("TOKENS", [1, length], "INT64")
            tensor.set_data_from_numpy(np.ones((1, length), np.int64))
            client.async_infer("summaries", [tensor], lambda result, error, n=length: answers.put((n, result, error)))
        ended = [answers.get(timeout=30) for _ in LENGTHS]
    are_right, batches = True, set()
    for length, result, error in ended:
        if error is not None:
            print(f"a text of {length} tokens failed: {error}", file=sys.stderr)
            return 1
        tokens = int(result.as_numpy("BATCH_TOKENS")[0, 0])
        batches.add(tokens)
        are_right &= int(result.as_numpy("SUM")[0, 0]) == length and tokens <= max(LIMIT, length)
    print(f"{len(ended)} texts of {min(LENGTHS)} to {max(LENGTHS)} tokens; batches had {min(batches)} to {max(batches)}")
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001"))

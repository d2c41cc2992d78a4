"""Ask the four Python models beside this: `python client.py localhost:8000`."""

from __future__ import annotations

import json
import sys
from urllib.request import Request, urlopen

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

TEXT = "What a day! And what a night!"


def main(address: str) -> int:
    """Return the exit code: 0 when every answer is the right one."""
    with triton.InferenceServerClient(address) as client:
        features = infer(client, "features", "TEXT", np.array([[TEXT]], object), "FEATURES")
        print("features:", features.tolist())
        score = infer(client, "score", "FEATURES", features, "SCORE")
        print(f"score: {score[0, 0]:.3f}")
        review = infer(client, "review", "TEXT", np.array([[TEXT], ["Well."]], object), "SCORE")
        print("review, which asks the other two:", ", ".join(f"{value:.3f}" for value in review[:, 0]))
        refusal = refused(client)
        print("review of an empty text:", refusal)
    words = list(stream(address, "words", {"TEXT": TEXT}))
    print("words, one response each:", words)
    are_right = (
        features.tolist() == [[29, 7, 2]]
        and np.allclose(score, 2 / 3)
        and np.allclose(review, [[2 / 3], [0]])
        and "an empty text" in refusal
        and words == TEXT.split()
    )
    return 0 if are_right else 1


def infer(client: triton.InferenceServerClient, model: str, name: str, array: np.ndarray, output: str) -> np.ndarray:
    """Return one output of a model with one input."""
    tensor = triton.InferInput(name, list(array.shape), "BYTES" if array.dtype == object else "FP32")
    tensor.set_data_from_numpy(array)
    return client.infer(model, [tensor]).as_numpy(output)


def refused(client: triton.InferenceServerClient) -> str:
    """Return what `review` says to an empty text."""
    try:
        infer(client, "review", "TEXT", np.array([[""]], object), "SCORE")
    except InferenceServerException as error:
        return str(error)
    return ""


def stream(address: str, model: str, inputs: dict[str, str]) -> list[str]:
    """Return the words of a decoupled model's responses, which come as server-sent events."""
    request = Request(f"http://{address}/v2/models/{model}/generate_stream", json.dumps(inputs).encode())
    with urlopen(request, timeout=10) as response:
        lines = [line.decode() for line in response]
    return [json.loads(line.removeprefix("data:"))["WORD"] for line in lines if line.startswith("data:")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000"))

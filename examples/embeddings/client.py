"""Ask the ensemble `text_embedding` for the vectors of texts, and show which of them are about the same.

    python examples/embeddings/client.py [ADDRESS [TEXT ...]]

ADDRESS is HOST:PORT of gRPC, or http://HOST:PORT. Each text is compared with the first one; without texts it takes its own and
checks the answers.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import tritonclient.grpc
import tritonclient.http

TEXTS = ("The cat sat on the mat.", "A kitten is lying on a rug.", "The stock market fell sharply today.")


def embed(address: str, texts: list[str]) -> npt.NDArray[np.float32]:
    """Return FP32[texts, 384] by one request; the vectors have the length 1."""
    triton, place = tritonclient.grpc, address
    if address.startswith("http://"):
        triton, place = tritonclient.http, address[len("http://") :]
    tensor = triton.InferInput("TEXT", [len(texts), 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()] for text in texts], object))
    with triton.InferenceServerClient(place) as client:
        return client.infer("text_embedding", [tensor]).as_numpy("EMBEDDING")


def main(address: str, texts: list[str]) -> int:
    """Print how near each text is to the first one; return the exit code: 1 when its own texts are told wrongly."""
    asked = texts or list(TEXTS)
    vectors = embed(address, asked)
    nearness = vectors @ vectors[0]
    for text, value in zip(asked, nearness):
        print(f"{value:6.3f}  {text}")
    return 0 if texts or nearness[1] > 0.5 > nearness[2] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001", sys.argv[2:]))

"""The same models without a socket, as in a notebook or a batch job: `python examples/embeddings/in_process.py [TEXT ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from client import TEXTS

import naiad


def main(texts: list[str]) -> int:
    """Print how near each text is to the first one; return the exit code, as the client does."""
    asked = texts or list(TEXTS)
    with naiad.Server(http=False, model_repository=Path(__file__).parent / "models") as server:
        vectors = server.models["text_embedding"].infer({"TEXT": np.array([[text.encode()] for text in asked], object)})[
            "EMBEDDING"
        ]
    nearness = vectors @ vectors[0]
    for text, value in zip(asked, nearness):
        print(f"{value:6.3f}  {text}")
    return 0 if texts or nearness[1] > 0.5 > nearness[2] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

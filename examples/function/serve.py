"""A Python function as a model: `python examples/function/serve.py`, then ask it as the README beside this says.

The function gets the images of all requests that wait, one batch, and returns what is asked of it for each.
"""

from __future__ import annotations

import argparse

import numpy as np

import naiad
from naiad import Batching, Tensor, model_function


@model_function(
    inputs=[Tensor("image", dtype=np.uint8, shape=(-1, -1, 3))],
    outputs=[Tensor("mean_color", dtype=np.float32, shape=(3,)), Tensor("brightness", dtype=np.float32, shape=(1,))],
    batching=Batching(max_batch_size=16, max_queue_delay_us=1000),
)
def colors(image: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean color (0 to 1) and the brightness of each image of a batch, `[n, height, width, 3]`."""
    mean = image.mean(axis=(1, 2), dtype=np.float32) / 255
    return {"mean_color": mean, "brightness": mean.mean(axis=1, keepdims=True)}


def main() -> None:
    """Serve until ^C."""
    parser = argparse.ArgumentParser(description="Serve a function that tells the colors of images.")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    parser.add_argument("--metrics-port", type=int, default=8002)
    arguments = parser.parse_args()
    ports = {name: port for name, port in vars(arguments).items() if name.endswith("_port")}
    naiad.serve(colors, **ports)


if __name__ == "__main__":
    main()

"""The same function without a socket, as in a test or a notebook: `python examples/function/in_process.py`."""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from serve import colors

import naiad


async def ask_many(model: naiad.ModelHandle) -> list[float]:
    """Return the brightness of grey images that are asked for at once, and so run together."""
    images = [np.full((1, 8, 8, 3), grey, np.uint8) for grey in (0, 51, 102, 255)]
    answers = await asyncio.gather(*(model.infer_async({"image": image}) for image in images))
    return [float(answer["brightness"][0, 0]) for answer in answers]


def main() -> int:
    """Return the exit code: 0 when every answer is the right one."""
    server = naiad.Server(http=False)
    server.bind("colors", colors)
    with server:
        model = server.models["colors"]
        red = model.infer({"image": np.full((1, 2, 2, 3), (255, 0, 0), np.uint8)})
        print("mean color of red:", red["mean_color"][0].tolist())
        many = asyncio.run(ask_many(model))
        print("brightness of greys:", [round(value, 3) for value in many])
        print("batches:", model.statistics["execution_count"], "for", model.statistics["inference_count"], "images")
    return 0 if red["mean_color"][0].tolist() == [1, 0, 0] and np.allclose(many, [0, 0.2, 0.4, 1]) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Ask the function of `serve.py` by Triton's client, with images of several sizes: `python client.py localhost:8000`."""

from __future__ import annotations

import sys

import numpy as np
import tritonclient.http as triton


def main(address: str) -> int:
    """Return the exit code: 0 when every answer is the right one."""
    with triton.InferenceServerClient(address) as client:
        for height, width, color in ((8, 8, (255, 0, 0)), (4, 16, (0, 255, 255)), (1, 1, (51, 51, 51))):
            image = np.full((1, height, width, 3), color, np.uint8)
            item = triton.InferInput("image", image.shape, "UINT8")
            item.set_data_from_numpy(image)
            result = client.infer("colors", [item])
            mean, brightness = result.as_numpy("mean_color")[0], result.as_numpy("brightness")[0, 0]
            print(f"{height}x{width}: mean color {mean.round(3).tolist()}, brightness {brightness:.3f}")
            if not np.allclose(mean, np.array(color) / 255) or not np.isclose(brightness, np.mean(color) / 255):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000"))

"""Ask `add_sub` with Triton's own client: two inputs in, two outputs back, binary on the wire.

python examples/clients/add_sub.py [HOST:PORT]
"""

from __future__ import annotations

import sys

import numpy as np
import tritonclient.http as triton


def main(url: str) -> None:
    """Send one request and check its answer."""
    a = np.array([[1, 2, 3, 4]], dtype=np.float32)
    b = np.array([[10, 20, 30, 40]], dtype=np.float32)
    inputs = [triton.InferInput("A", a.shape, "FP32"), triton.InferInput("B", b.shape, "FP32")]
    inputs[0].set_data_from_numpy(a)
    inputs[1].set_data_from_numpy(b)
    with triton.InferenceServerClient(url) as client:
        result = client.infer("add_sub", inputs)
    total, difference = result.as_numpy("SUM"), result.as_numpy("DIFFERENCE")
    print(f"A + B = {total.tolist()}\nA - B = {difference.tolist()}")
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(difference, a - b)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")

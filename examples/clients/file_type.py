"""Ask the real model `file_type` what some files are; the server turns scores into labels (classification extension).

    python examples/clients/file_type.py [HOST:PORT [FILE ...]]

Without files it asks about a Python, a C and a JSON text of its own and checks the answers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tritonclient.http as triton

SAMPLES = {
    "python": b"import os\n\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n\n\n"
    b"if __name__ == '__main__':\n    main('.')\n" * 3,
    "c": b"#include <stdio.h>\n#include <stdlib.h>\n\nint main(int argc, char **argv) {\n    for (int i = 0; i < argc; i++)\n"
    b'        printf("%s\\n", argv[i]);\n    return EXIT_SUCCESS;\n}\n' * 3,
    "json": b'{\n  "name": "naiad",\n  "versions": [1, 2, 3],\n  "nested": {\n    "flag": true,\n    "value": null\n  },\n'
    b'  "items": [\n    {"id": 1, "text": "water"},\n    {"id": 2, "text": "stone"}\n  ]\n}\n',
}
EDGE_BYTES = 1024
PADDING = 256


def features(content: bytes) -> npt.NDArray[np.int32]:
    """Return the model's input of one file, INT32[2048]: its first and its last 1,024 bytes without outer white space."""
    beginning, end = content.lstrip()[:EDGE_BYTES], content.rstrip()[-EDGE_BYTES:]
    values = np.full(2 * EDGE_BYTES, PADDING, dtype=np.int32)
    values[: len(beginning)] = list(beginning)
    values[2 * EDGE_BYTES - len(end) :] = list(end)
    return values


def main(url: str, paths: list[str]) -> None:
    """Send all files as one batch and print the best two labels of each."""
    contents = {path: Path(path).read_bytes() for path in paths} or SAMPLES
    batch = np.stack([features(content) for content in contents.values()])
    request = triton.InferInput("bytes", batch.shape, "INT32")
    request.set_data_from_numpy(batch)
    wanted = triton.InferRequestedOutput("target_label", class_count=2)
    with triton.InferenceServerClient(url) as client:
        classes = client.infer("file_type", [request], outputs=[wanted]).as_numpy("target_label")
    for name, row in zip(contents, classes):
        best = [entry.decode().split(":") for entry in row]
        print(f"{name}: " + ", ".join(f"{label} {float(score):.2f}" for score, _, label in best))
        if contents is SAMPLES:
            assert best[0][2] == name, f"expected {name}, got {best[0][2]}"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000", sys.argv[2:])

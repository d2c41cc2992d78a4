"""The bare engine: ONNX Runtime in a loop, in a process of its own, as fast as it goes. `python -m bench.onnx.loop --help`.

What a server can reach at most with the same engine settings: one thread, the largest batch, no server around it. Besides, it
writes the model's answer to one request, which the server's answer is compared with.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import onnxruntime


def main() -> None:
    """Time the loop and print one line of JSON: items and CPU seconds used, over how many seconds."""
    arguments = _parse()
    session = open_session(arguments.model)
    source, target = session.get_inputs()[0].name, session.get_outputs()[0].name
    item = np.load(arguments.input)
    np.save(arguments.answer, session.run([target], {source: item})[0])
    batch = {source: np.concatenate([item] * arguments.batch)}
    session.run([target], batch)
    runs, started_s, started_cpu_s = 0, time.monotonic(), time.process_time()
    while time.monotonic() - started_s < arguments.duration:
        session.run([target], batch)
        runs += 1
    seconds, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    print(json.dumps({"items": runs * arguments.batch, "seconds": seconds, "cpu_s": cpu_s}))


def open_session(model: Path) -> onnxruntime.InferenceSession:
    """Open the model on one CPU thread, which doesn't spin while it waits."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.onnx.loop", description="Run one ONNX model in a bare loop.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True, help="one request's input, a .npy file with the batch dimension")
    parser.add_argument("--answer", type=Path, required=True, help="where to write the output for it, a .npy file")
    parser.add_argument("--batch", type=int, required=True, help="requests in one run")
    parser.add_argument("--duration", type=float, required=True, help="seconds")
    return parser.parse_args()


if __name__ == "__main__":
    main()

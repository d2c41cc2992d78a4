"""Naiad beside the client libraries in one process: nothing clashes, and importing it changes nothing for the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from http_models import write_identity

# Naiad makes its messages when the first is asked for.
IMPORTS = {
    "naiad": "import naiad.server.process; from naiad.proto.pool import message_class; message_class('inference.ModelConfig')",
    "grpc": "import tritonclient.grpc",
    "http": "import tritonclient.http",
}
ORDERS = ["naiad grpc http", "grpc naiad http", "http naiad grpc", "naiad http grpc"]

SERVE = """
import contextlib, json, os, queue, signal, sys, threading
from naiad.config.options import parse_options
from naiad.server.process import run
import tritonclient.http as triton
import numpy as np

class Lines:
    def __init__(self):
        self.lines, self.rest = queue.Queue(), ""
    def write(self, text):
        *whole, self.rest = (self.rest + text).split("\\n")
        for line in whole:
            self.lines.put(line)
    def flush(self):
        pass

def ask(lines, found):
    try:
        address = None
        while not (line := lines.lines.get(timeout=15)).startswith("NAIAD_READY"):
            if line.startswith("NAIAD_LISTENING "):
                address = json.loads(line.split(" ", 1)[1])["http"]
        with triton.InferenceServerClient(address) as client:
            made = triton.InferInput("X", [1, 2], "FP32")
            made.set_data_from_numpy(np.array([[1, 2]], np.float32))
            found.append(client.infer("echo", [made]).as_numpy("Y").tolist())
    finally:
        os.kill(os.getpid(), signal.SIGTERM)

for _ in range(2):
    lines, found = Lines(), []
    asking = threading.Thread(target=ask, args=(lines, found))
    asking.start()
    with contextlib.redirect_stdout(lines):
        code = run(parse_options([sys.argv[1], "--http-port=0", "--grpc-port=0", "--metrics-port=0"]))
    asking.join()
    assert (code, found) == (0, [[[1.0, 2.0]]]), (code, found)
"""

UNTOUCHED = """
import asyncio, gc, importlib, logging, multiprocessing, os, pkgutil, signal, socket, sys, threading, warnings
import google.protobuf.descriptor_pool as pools
import prometheus_client

def state():
    return {
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "handlers": list(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "naiad handlers": list(logging.getLogger("naiad").handlers),
        "policy": asyncio.events._event_loop_policy,
        "start method": multiprocessing.get_start_method(allow_none=True),
        "environment": dict(os.environ),
        "switch interval": sys.getswitchinterval(),
        "garbage": (gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()),
        "classes": (socket.socket, threading.Thread, os.fork, subprocess_popen()),
        "threads": threading.active_count(),
        "excepthooks": (sys.excepthook, threading.excepthook),
        "metrics": sorted(family.name for family in prometheus_client.REGISTRY.collect()),
        "folder": os.getcwd(),
    }

def subprocess_popen():
    import subprocess
    return subprocess.Popen

if sys.version_info < (3, 11):
    # What anyio needs on 3.10 to have groups of exceptions; it brings an excepthook of its own.
    import exceptiongroup

before = state()
import naiad
names = [found.name for found in pkgutil.walk_packages(naiad.__path__, "naiad.") if not found.name.endswith("__main__")]
assert len(names) > 100, names
for name in names:
    importlib.import_module(name)
after = state()
assert before == after, {key: (before[key], after[key]) for key in before if before[key] != after[key]}
for file in ("grpc_service.proto", "model_config.proto", "health.proto"):
    try:
        pools.Default().FindFileByName(file)
    except KeyError:
        continue
    raise AssertionError(f"{file} is in the process's own pool")
"""


def run_python(code: str, *arguments: object, **environment: str) -> None:
    """Run `code` in a new interpreter, warnings as errors; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr


def test_importing_everything_changes_nothing_for_the_process():
    run_python(UNTOUCHED)


def test_importing_naiad_alone_imports_nothing_else():
    run_python("import sys, naiad; assert [name for name in sys.modules if name.startswith('naiad')] == ['naiad']")


@pytest.mark.parametrize("runtime", ["upb", "python"])
@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_imports_works_with_each_protobuf_runtime(order, runtime):
    code = "\n".join(IMPORTS[name] for name in order.split())
    run_python(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=runtime)


def test_a_server_in_the_clients_process_answers_and_can_be_started_again(tmp_path):
    write_identity(tmp_path, "echo")
    run_python(SERVE, tmp_path)

"""A worker doesn't outlive its server, whatever either of them is doing."""

import os
import signal
import subprocess
import sys

import pytest
from process_facts import is_alive
from waiting import wait_until

# Starts a real worker whose model is being imported, says its number, and goes on.
SERVER = """
import asyncio, sys
from pathlib import Path
from naiad.backends.base import WorkerProgram
from naiad.execution.process.life.death import WorkerIdentity
from naiad.execution.process.life.process import WorkerHooks, WorkerProcess
from naiad.execution.process.life.settings import WorkerSettings
from naiad.worker.frames import Kind

async def main(model):
    program = WorkerProgram(Path(sys.executable), True, {}, model, model.parent.parent, model.parent)
    process = await WorkerProcess.start(program, WorkerSettings(), WorkerIdentity("m", "1", "m_0_0"), WorkerHooks(print))
    folders = {"model_directory": str(model.parent.parent), "version_directory": str(model.parent), "backend_directory": ""}
    message = {"name": "m", "version": "1", "model_file": str(model), **folders}
    loading = asyncio.ensure_future(process.ask(Kind.LOAD, message))
    while not (model.parent / "busy").exists():
        await asyncio.sleep(0.01)
    print(process.pid, flush=True)
    await loading

asyncio.run(main(Path(sys.argv[1])))
"""

BUSY = {
    "waiting": "time.sleep(600)",
    "computing": "while True: pass",
    "deaf to signals": "[signal.signal(number, signal.SIG_IGN) for number in (15, 1, 2)]\nwhile True: time.sleep(1)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the end of its socket ends a worker, once it reads")
@pytest.mark.parametrize("doing", BUSY.values(), ids=BUSY)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_ends_with_its_server(tmp_path, doing, end):
    model = tmp_path / "m" / "1" / "model.py"
    model.parent.mkdir(parents=True)
    mark = "(pathlib.Path(__file__).parent / 'busy').touch()"
    model.write_text(f"import pathlib, signal, time\n{mark}\n{doing}\n")
    with subprocess.Popen([sys.executable, "-c", SERVER, str(model)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        worker = int(server.stdout.readline())
        assert is_alive(worker)
        os.kill(server.pid, end)
    wait_until(lambda: not is_alive(worker), what="the end of the worker")

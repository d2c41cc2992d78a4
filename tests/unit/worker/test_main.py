"""The process of a worker: what it can import, which signals it takes, what it leaves to its children, when it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_peer import WorkerPeer

import naiad.worker
from naiad.memory.arena import Block
from naiad.worker.frames import VERSION, Kind

PROGRAM = Path(naiad.worker.__file__).parent / "__main__.py"
ONE = np.array([1], np.float32)

_MODEL = """
import triton_python_backend_utils as pb_utils
import numpy as np
{before}

class TritonPythonModel:
    def execute(self, requests):
        self.requests = requests
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([self.said()], object))])]

    def said(self):
{said}
"""


class Started:
    """A worker's process and the server's end of its sockets."""

    def __init__(self, process: subprocess.Popen[str], peer: WorkerPeer, control: socket.socket) -> None:
        self.process = process
        self.peer = peer
        self.control = control

    def load(self, folder: Path, said: str, before: str = "") -> None:
        """Load a model that answers what the body `said` returns, as text."""
        body = "\n".join(f"        {line}" for line in said.splitlines())
        (folder / "1").mkdir(exist_ok=True)
        (folder / "1" / "model.py").write_text(_MODEL.format(before=before, said=body))
        file, version = str(folder / "1" / "model.py"), str(folder / "1")
        load = {"name": "m", "version": "1", "model_file": file, "model_directory": str(folder), "version_directory": version}
        self._done(self.peer.ask(Kind.LOAD, {**load, "backend_directory": ""}))
        start = {
            "args": {"model_instance_name": "m_0"},
            "is_decoupled": False,
            "is_iterative": False,
            "outputs": ["Y"],
            "progress": None,
        }
        self._done(self.peer.ask(Kind.INITIALIZE, start))

    def said(self) -> str:
        """Return what the model says now."""
        self.peer.execute(ONE)
        (said,) = self.peer.said(self.peer.wait(lambda frame: frame.kind in (Kind.RESULT, Kind.RETURNED)))
        return said if isinstance(said, str) else said[0].decode()

    def finalize(self) -> int:
        """Return the exit code after an orderly end."""
        assert self.peer.ask(Kind.FINALIZE).kind == Kind.DONE
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(10)

    def stderr(self) -> str:
        self.wait()
        assert self.process.stderr is not None
        return self.process.stderr.read()

    @staticmethod
    def _done(answer: Any) -> None:
        assert answer.kind == Kind.DONE, answer.tail.decode()


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """Start workers; what still runs of them at the end is killed."""
    with ExitStack() as ends:

        def begin(*options: str, parent: int | None = None, **environment: str) -> Started:
            pairs = [socket.socketpair() for _ in range(2)]
            numbers = [str(pair[0].fileno()) for pair in pairs]
            sizes = [str(1 << 20), str(1 << 20), str(64 << 20)]
            process = subprocess.Popen(
                [sys.executable, *options, str(PROGRAM), *numbers, str(parent or os.getpid()), *sizes, "-", "m"],
                pass_fds=[int(number) for number in numbers],
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, **environment},
            )
            ends.enter_context(process)
            ends.callback(_kill_session, process)
            for near, far in pairs:
                near.close()
                ends.callback(far.close)
            return Started(process, WorkerPeer(pairs[0][1], pairs[1][1]), pairs[0][1])

        yield begin


def _kill_session(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_worker_says_hello_works_and_ends_with_zero(start, tmp_path):
    worker = start()
    hello = worker.peer.next_frame()
    said = json.loads(hello.tail)
    assert (hello.kind, hello.id) == (Kind.HELLO, VERSION)
    assert said == {"pid": worker.process.pid, "python": sys.version.split()[0], "numpy": np.__version__}
    worker.load(tmp_path, "return 'here'")
    assert worker.said() == "here"
    assert worker.finalize() == 0
    assert worker.stderr() == ""


def test_a_worker_whose_server_has_died_already_ends_before_it_says_anything(start):
    worker = start(parent=1)
    assert worker.wait() == 1
    assert worker.control.recv(1) == b""


def test_a_worker_ends_when_its_server_closes_the_socket(start):
    worker = start()
    worker.peer.next_frame()
    worker.control.shutdown(socket.SHUT_RDWR)
    assert worker.wait() == 0


def test_a_worker_that_cannot_read_its_server_ends_and_says_why(start):
    worker = start()
    worker.peer.next_frame()
    worker.peer.say(Kind.SEGMENT_GONE, 77)
    assert worker.wait() == 1
    assert "segment 77 was taken back, which isn't there" in worker.stderr()


def test_a_batch_outside_of_the_servers_memory_is_never_read(start, tmp_path):
    worker = start()
    worker.load(tmp_path, "return 'here'")
    worker.peer.say(Kind.EXECUTE, 1, [{"inputs": []}], block=Block(1, 0, 64))
    assert worker.wait() == 1
    assert "a block lies in segment 1, which isn't there" in worker.stderr()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_group_do_not_end_a_worker_with_work(start, tmp_path, number):
    worker = start()
    worker.load(tmp_path, "return 'here'")
    os.killpg(worker.process.pid, number)
    assert worker.said() == "here"
    assert worker.finalize() == 0


# Children of the model.


@pytest.mark.parametrize("where", ["run()", "ThreadPoolExecutor(1).submit(run).result()"], ids=["main thread", "thread"])
def test_a_forked_child_can_be_terminated(start, tmp_path, where):
    worker = start()
    code = f"""
def run():
    child = os.fork()
    if not child:
        while True:
            signal.pause()
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
return str({{{where} for _ in range(20)}})
"""
    before = "import os, signal, warnings\nfrom concurrent.futures import ThreadPoolExecutor\nwarnings.simplefilter('ignore')"
    worker.load(tmp_path, code, before)
    assert worker.said() == str({-signal.SIGTERM})
    assert worker.finalize() == 0


def test_a_pool_of_forked_processes_works_and_ends(start, tmp_path):
    worker = start()
    code = """
with multiprocessing.get_context("fork").Pool(2) as pool:
    return str(pool.map(abs, [-1, -2]))
"""
    worker.load(tmp_path, code, "import multiprocessing")
    assert worker.said() == "[1, 2]"
    assert worker.said() == "[1, 2]"
    assert worker.finalize() == 0


def test_a_spawned_child_finds_the_models_modules(start, tmp_path):
    worker = start()
    (tmp_path / "near.py").write_text("def twice(x):\n    return 2 * x\n")
    code = """
with multiprocessing.get_context("spawn").Pool(1) as pool:
    return str(pool.map(near.twice, [4]))
"""
    worker.load(tmp_path, code, "import multiprocessing, near")
    assert worker.said() == "[8]"
    assert worker.finalize() == 0


def test_a_forked_child_says_nothing_to_the_server(start, tmp_path):
    """It lets go of all that the model keeps and tries to call another model; the parent's answers stay whole."""
    worker = start()
    code = """
if not hasattr(self, "array"):
    self.array = self.requests[0].inputs()[0].as_numpy()
    return "kept"
child = os.fork()
if not child:
    try:
        self.requests.clear()
        self.array = None
        pb_utils.Logger.log_info("from the child")
        pb_utils.is_model_ready("other")
    except BaseException as error:
        os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)
return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    worker.load(tmp_path, code, "import os")
    assert worker.said() == "kept"
    assert worker.said() == "7"
    worker.peer.sync()
    assert (worker.peer.released(), worker.peer.kept(Kind.LOG), worker.peer.kept(Kind.RESPONSE)) == ([], [], [])
    assert worker.finalize() == 0


def test_a_forked_child_that_returns_from_execute_ends_alone(start, tmp_path):
    worker = start()
    code = """
child = os.fork()
if child:
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
return "the child's"
"""
    worker.load(tmp_path, code, "import os")
    assert worker.said() == "1"
    worker.peer.sync()
    assert worker.peer.kept(Kind.RESULT) == []
    assert worker.finalize() == 0


# Other interpreters.


@pytest.fixture
def bare(tmp_path) -> list[str]:
    """Return the settings of an interpreter that has the standard library and numpy, no naiad and no installed package."""
    folder = tmp_path / "packages"
    folder.mkdir()
    installed = Path(np.__file__).parent.parent
    for path in installed.glob("numpy*"):
        if path.is_dir() and path.suffix != ".dist-info":
            (folder / path.name).symlink_to(path)
    return [str(folder)]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("return pb_utils.Tensor.__module__", "naiad.worker.api.tensor"),
        ("from naiad.model import Model\nreturn Model.__module__", "naiad.model.model"),
        (
            "try:\n    import naiad.server\nexcept ImportError as error:\n    return str(error)",
            "naiad.server isn't part of what a model's own environment can import of naiad",
        ),
        ("try:\n    import orjson\nexcept ImportError as error:\n    return str(error)", "No module named 'orjson'"),
        ("try:\n    import frames\nexcept ImportError as error:\n    return str(error)", "No module named 'frames'"),
    ],
    ids=["the model API", "our own API", "the server", "its packages", "the worker's folder"],
)
def test_an_interpreter_with_numpy_alone_has_the_model_api_and_no_more(start, tmp_path, bare, code, said):
    worker = start("-S", PYTHONPATH=bare[0])
    worker.load(tmp_path, code)
    assert worker.said() == said
    assert worker.finalize() == 0


def test_a_child_spawned_in_another_interpreter_finds_the_same(start, tmp_path, bare):
    worker = start("-S", PYTHONPATH=bare[0])
    (tmp_path / "near.py").write_text("import triton_python_backend_utils\nfrom naiad.model import Model\ntwice = abs\n")
    code = """
with multiprocessing.get_context("spawn").Pool(1) as pool:
    return str(pool.map(near.twice, [-4]))
"""
    worker.load(tmp_path, code, "import multiprocessing, near")
    assert worker.said() == "[4]"
    assert worker.finalize() == 0


def test_another_naiad_in_the_environment_is_not_mixed_in(start, tmp_path, bare):
    other = Path(bare[0]) / "naiad"
    other.mkdir()
    (other / "__init__.py").write_text("raise ImportError('the wrong naiad')")
    worker = start("-S", PYTHONPATH=bare[0])
    worker.load(tmp_path, "return pb_utils.Tensor.__module__")
    assert worker.said() == "naiad.worker.api.tensor"
    assert worker.finalize() == 0

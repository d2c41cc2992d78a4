"""A worker gets the environment, the descriptors and the session that are meant for it, and nothing else."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from process_facts import facts

from naiad.backends.base import WorkerProgram
from naiad.devices.devices import CpuShare
from naiad.execution.process.life.child.launch import Launched, environment, launch
from naiad.memory.arena import ArenaLimits

TELL = """
import json, os, sys
fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
print(json.dumps({
    "argv": sys.argv[1:], "fds": sorted(fd for fd in fds if os.path.lexists(f"/proc/self/fd/{fd}")), "session": os.getsid(0),
    "stdin": os.readlink("/proc/self/fd/0"), "folder": os.getcwd(),
}))
print("late", file=sys.stderr)
"""


def program(interpreter: Path, is_own: bool = True, **variables: str) -> WorkerProgram:
    return WorkerProgram(interpreter, is_own, variables, Path("/m/1/model.py"), Path("/m"), Path("/m/1"))


def close(launched: Launched) -> None:
    launched.process.wait()
    launched.control.close()
    launched.descriptors.close()
    os.close(launched.stdout_fd)
    os.close(launched.stderr_fd)


@pytest.fixture
def telling(tmp_path) -> Path:
    """An interpreter that says what it was started with, whatever it is to run."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\n{TELL}")
    path.chmod(0o755)
    return path


def test_the_worker_has_its_two_sockets_and_the_three_standard_descriptors(telling):
    before = facts(os.getpid()).descriptors
    pair = socket.socketpair()
    for sock in pair:
        sock.set_inheritable(True)
    launched = launch(program(telling), "m_0_0", ArenaLimits(4096, 8192, 65536), CpuShare(frozenset({0, 1, 4})))
    launched.process.wait()
    told = json.loads(os.read(launched.stdout_fd, 65536))
    main, control, descriptors, parent, *sizes, cpus, name = told["argv"]
    assert Path(main).parts[-3:] == ("naiad", "worker", "__main__.py")
    assert (parent, sizes, cpus, name) == (str(os.getpid()), ["4096", "8192", "65536"], "0-1,4", "m_0_0")
    assert told["fds"] == sorted([0, 1, 2, int(control), int(descriptors)])
    assert told["session"] == launched.process.pid
    assert (told["stdin"], told["folder"]) == ("/dev/null", str(Path.cwd()))
    assert os.read(launched.stderr_fd, 100) == b"late\n"
    assert not any(map(os.get_inheritable, (launched.control.fileno(), launched.descriptors.fileno(), launched.stdout_fd)))
    close(launched)
    for sock in pair:
        sock.close()
    assert facts(os.getpid()).descriptors <= before  # Those of an earlier test may end meanwhile.


def test_an_interpreter_that_cant_be_started_leaves_no_descriptor(tmp_path):
    before = facts(os.getpid()).descriptors
    with pytest.raises(FileNotFoundError):
        launch(program(tmp_path / "missing"), "m_0_0", ArenaLimits())
    assert facts(os.getpid()).descriptors <= before  # Those of an earlier test may end meanwhile.


@pytest.mark.parametrize(("is_own", "home"), [(True, "/home"), (False, None)])
def test_another_interpreter_isnt_told_the_servers_standard_library(monkeypatch, is_own, home):
    monkeypatch.setenv("PYTHONHOME", "/home")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    got = environment(program(Path("python"), is_own))
    assert (got.get("PYTHONHOME"), got["PYTHONPATH"]) == (home, "/mine")


def test_the_programs_variables_go_above_all_others(monkeypatch):
    monkeypatch.setenv("OF_SERVER", "server")
    monkeypatch.setenv("OF_BOTH", "server")
    got = environment(program(Path("python"), OF_BOTH="program", PYTHONUNBUFFERED=""))
    assert (got["OF_SERVER"], got["OF_BOTH"], got["PYTHONUNBUFFERED"]) == ("server", "program", "")


def test_output_comes_at_once_crashes_are_told_and_no_bytecode_is_kept(monkeypatch):
    monkeypatch.setenv("PYTHONFAULTHANDLER", "")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    got = environment(program(Path("python")))
    assert (got["PYTHONUNBUFFERED"], got["PYTHONDONTWRITEBYTECODE"]) == ("1", "1")
    assert got["PYTHONFAULTHANDLER"] == ""
    monkeypatch.delenv("PYTHONFAULTHANDLER")
    assert environment(program(Path("python")))["PYTHONFAULTHANDLER"] == "1"


def test_libraries_are_told_how_many_threads_to_start_unless_someone_has_said_so(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = CpuShare(thread_count=3)
    assert environment(program(Path("python")), share)["OMP_NUM_THREADS"] == "3"
    assert environment(program(Path("python"), OMP_NUM_THREADS="9"), share)["OMP_NUM_THREADS"] == "9"
    assert "OMP_NUM_THREADS" not in environment(program(Path("python")), CpuShare())
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert environment(program(Path("python")), share)["OMP_NUM_THREADS"] == "7"

"""Commands end in time with all that they have started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
from waiting import wait_until

from naiad.backends.python.command import run_command


def _run(script: str, tmp_path: Path, timeout_s: float = 15.0):
    return run_command([sys.executable, "-c", script], os.environ, tmp_path, timeout_s)


def test_what_it_says_on_both_streams_is_kept(tmp_path: Path):
    result = _run("import sys; print('out', flush=True); print('err', file=sys.stderr)", tmp_path)
    assert (result.is_success, result.output, result.tail) == (True, "out\nerr\n", "out\nerr")


def test_a_failure_shows_the_last_lines(tmp_path: Path):
    result = _run("for i in range(100): print(i)\nraise SystemExit(2)", tmp_path)
    assert not result.is_success
    assert [str(number) for number in range(80, 100)] == result.tail.split("\n")


def test_silence_and_odd_bytes_are_no_problem(tmp_path: Path):
    assert _run("raise SystemExit(1)", tmp_path).tail == "it said nothing"
    assert _run(r"import sys; sys.stdout.buffer.write(b'\xff\n')", tmp_path).output == "\ufffd\n"


def test_after_its_time_it_is_ended_with_its_children(tmp_path: Path):
    # The grandchild holds the pipe that is read to its end: were it alive, this would wait for it.
    script = (
        "import subprocess, sys, time; print('begun', flush=True)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\ntime.sleep(600)"
    )
    result = _run(script, tmp_path, timeout_s=1.0)
    assert not result.is_success
    assert "it was ended after 1 s" in result.tail


def test_it_ends_with_its_children_when_the_process_that_waits_for_it_does(tmp_path: Path):
    inmost = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(600)"
    inner = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {inmost!r}])"
    outer = (
        "import os, pathlib, sys; from naiad.backends.python.command import run_command\n"
        f"run_command([sys.executable, '-c', {inner!r}], os.environ, pathlib.Path('/'), 600.0)"
    )
    waiting = subprocess.Popen([sys.executable, "-c", outer])
    pid_file = tmp_path / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text(), what="the start of the command's child")
    waiting.kill()
    waiting.wait()
    wait_until(lambda: not psutil.pid_exists(int(pid_file.read_text())), what="its end")


def test_a_missing_program_is_a_failure_that_names_it(tmp_path: Path):
    result = run_command([str(tmp_path / "nowhere")], os.environ, tmp_path, 15.0)
    assert not result.is_success
    assert "FileNotFoundError" in result.tail

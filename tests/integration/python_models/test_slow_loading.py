"""A model that takes its time to load: its end is not waited for, and the operator may limit it."""

from __future__ import annotations

import psutil
from python_models import write_python_model
from server_process import ServerProcess
from waiting import wait_until

SLOW = """
import time
open({began!r}, "w").close()
time.sleep({seconds})
"""


def test_a_stop_does_not_wait_for_a_model_that_still_imports(tmp_path):
    began = tmp_path / "began"
    write_python_model(tmp_path / "models", "slow", SLOW.format(began=str(began), seconds=3600))
    server = ServerProcess(tmp_path / "models").wait_listening()
    wait_until(began.exists, what="the import")
    workers = psutil.Process(server.pid).children(recursive=True)
    assert workers
    server.stop()
    assert psutil.wait_procs(workers, 5)[1] == []


def test_an_import_that_takes_longer_than_its_limit_fails_the_model(tmp_path):
    write_python_model(tmp_path / "models", "slow", SLOW.format(began=str(tmp_path / "began"), seconds=3600))
    server = ServerProcess(tmp_path / "models", "--worker-load-timeout-secs=1")
    assert server.wait() == 1
    assert "'slow'" in server.log()
    assert "--worker-load-timeout-secs" in server.log()

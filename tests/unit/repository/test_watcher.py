"""Listening for changes: what is heard is one call, what can't be heard is said once."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from naiad.repository.control.watcher import Watcher


class Listener:
    """Says what a test wants, then that it was stopped."""

    def __init__(self, said, watcher):
        self.said = list(said)
        self.watcher = watcher
        self.folders: list[list[str]] = []

    def __call__(self, folders):
        self.folders.append(list(folders))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def watch(self, *_):
        if not self.said:
            self.watcher[0].stop()
            return "stop"
        heard = self.said.pop(0)
        if isinstance(heard, Exception):
            raise heard
        return heard() if callable(heard) else heard


def run(paths, said):
    calls, holder = [], []
    listener = Listener(said, holder)
    holder.append(Watcher(paths, lambda: calls.append(1), listener))
    holder[0].run()
    return len(calls), listener


def changes(count):
    return {(1, str(number)) for number in range(count)}


def test_a_burst_is_one_call_as_is_the_beginning_and_silence_is_none(tmp_path):
    calls, listener = run([tmp_path], [changes(3000), "timeout", "timeout", changes(1)])
    assert (calls, listener.folders) == (1 + 2, [[str(tmp_path)]])


def test_after_more_than_the_system_may_keep_listening_begins_anew(tmp_path, caplog):
    caplog.set_level("INFO")
    calls, listener = run([tmp_path], [changes(5000), changes(1)])
    assert (calls, len(listener.folders)) == (2 + 2, 2)
    assert "5000 changes at once" in caplog.text


@pytest.mark.parametrize("error", [OSError("OS file watch limit reached."), RuntimeError("queue overflow")])
def test_what_cannot_be_listened_to_is_said_in_one_line_and_ends_it(tmp_path, caplog, error):
    calls, listener = run([tmp_path], [error])
    assert (calls, len(listener.folders)) == (1, 1)
    [line] = [record.getMessage() for record in caplog.records]
    assert line == f"changes in the model repositories are found by looks only: {error}"


def test_without_watchfiles_it_says_so(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles._rust_notify", None)
    Watcher([tmp_path], lambda: None).run()
    [line] = [record.getMessage() for record in caplog.records]
    assert "are found by looks only: import of watchfiles._rust_notify halted" in line


def test_folders_on_no_local_disk_are_left_to_looks(tmp_path, caplog):
    caplog.set_level("INFO")
    calls, listener = run([Path("/proc/self"), tmp_path], [changes(1)])
    assert (calls, listener.folders) == (1 + 1, [[str(tmp_path)]])
    assert "changes in '/proc/self' are found by looks only" in caplog.text


def test_a_folder_that_is_replaced_is_listened_to_anew(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()

    def replace():
        folder.rename(tmp_path / "old")
        folder.mkdir()
        return "timeout"

    calls, listener = run([folder], [replace, "timeout"])
    assert (calls, listener.folders) == (2, [[str(folder)]] * 2)


def test_a_real_change_is_heard(tmp_path):
    calls: list[int] = []
    pause = threading.Event()
    watcher = Watcher([tmp_path], lambda: calls.append(1))
    watcher.start()
    try:
        for number in range(100):
            (tmp_path / f"{number}").touch()
            pause.wait(0.1)
            if len(calls) > 1:
                break
        assert len(calls) > 1
    finally:
        watcher.stop()


def test_reading_is_no_change(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "file").write_text("x")
    calls = []
    watcher = Watcher([tmp_path], lambda: calls.append(1))
    thread = threading.Thread(target=watcher.run)
    thread.start()
    for _ in range(20):
        list((tmp_path / "m").iterdir())
        (tmp_path / "m" / "file").read_text()
        thread.join(0.03)
    watcher.stop()
    thread.join()
    assert calls == [1]

"""A remote repository's folder: whole or as before, whatever the store and the disk do."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from naiad.errors import Code, InferenceServerError
from naiad.repository.remote.address import parse_address
from naiad.repository.remote.repository import RemoteRepository
from naiad.repository.remote.store import Store, open_store

CONFIG, WEIGHTS = "m/config.pbtxt", "m/data/weights"


class FaultyFiles(MemoryFileSystem):
    """Memory files of one test; `faults` says by name what getting a file does, `got` what was asked for."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.store: dict = {}
        self.pseudo_dirs = [""]
        self.faults: dict = {}
        self.got: list[str] = []
        self.extra: dict = {}

    def put(self, **contents: bytes) -> None:
        for path, content in contents.items():
            self.pipe_file(f"/models/{path}", content)

    def find(self, path, **more):
        found = super().find(path, **more)
        if not isinstance(found, dict):
            return found
        return {name: {**info, **self.extra.get(Path(name).name, {})} for name, info in found.items()}

    def get_file(self, rpath, lpath, **more):
        name = Path(rpath).name
        self.got.append(name)
        fault = self.faults.get(name)
        if isinstance(fault, Exception):
            Path(lpath).write_bytes(self.cat_file(rpath)[:1])
            raise fault
        if fault is not None:
            Path(lpath).write_bytes(fault)
            return
        super().get_file(rpath, lpath, **more)

    def info(self, path, **more):
        return {**super().info(path, **more), **self.extra.get(Path(path).name, {})}


@pytest.fixture
def files():
    made = FaultyFiles()
    made.put(**{CONFIG: b"first", WEIGHTS: b"0123456789", "other/config.pbtxt": b"o", "readme": b"r"})
    return made


@pytest.fixture
def repository(files, tmp_path):
    address = parse_address("memory://models")
    return RemoteRepository(address, tmp_path / "cache", lambda: Store(address, files))


def tree(path: Path) -> dict[str, bytes]:
    return {
        f"{model.name}/{file.relative_to(model.resolve()).as_posix()}": file.read_bytes()
        for model in path.iterdir()
        for file in model.resolve().rglob("*")
        if file.is_file()
    }


def first() -> dict[str, bytes]:
    return {CONFIG: b"first", WEIGHTS: b"0123456789", "other/config.pbtxt": b"o"}


def test_models_come_and_files_beside_them_do_not(repository):
    assert first() == tree(repository.sync())


def test_the_cache_is_for_its_user_alone(repository, tmp_path):
    repository.sync()
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_cache_that_others_can_write_to_is_refused(repository, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(InferenceServerError, match="must belong to this user"):
        repository.sync()


def test_what_is_unchanged_is_not_fetched_again(repository, files):
    repository.sync()
    files.got.clear()
    repository.sync()
    assert files.got == []
    files.put(**{CONFIG: b"second"})
    assert {**first(), CONFIG: b"second"} == tree(repository.sync())
    assert files.got == ["config.pbtxt"]


def test_what_is_removed_goes(repository, files):
    repository.sync()
    files.rm("/models/other", recursive=True)
    files.rm(f"/models/{WEIGHTS}")
    assert tree(repository.sync()) == {CONFIG: b"first"}


def test_one_model_is_synchronised_alone(repository, files):
    repository.sync()
    files.put(**{CONFIG: b"second", "other/config.pbtxt": b"p"})
    repository.sync_model("m")
    assert {**first(), CONFIG: b"second"} == tree(repository.path)


def test_a_folder_with_a_config_is_one_model(files, tmp_path):
    address = parse_address("memory://models/m")
    path = RemoteRepository(address, tmp_path / "cache", lambda: Store(address, files)).sync()
    assert tree(path) == {CONFIG: b"first", WEIGHTS: b"0123456789"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ConnectionResetError("cut"), "'/models/m/data/weights' can't be copied: ConnectionResetError: cut"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space is left in the model cache"),
        (b"012", "3 bytes have come, must be 11"),
    ],
)
def test_a_copy_that_fails_leaves_the_old_one_and_goes_on_where_it_was(repository, files, fault, said):
    repository.sync()
    files.put(**{CONFIG: b"second", WEIGHTS: b"abcdefghijk"})
    files.faults["weights"] = fault
    with pytest.raises(InferenceServerError, match=said) as caught:
        repository.sync()
    assert caught.value.code == Code.UNAVAILABLE
    assert first() == tree(repository.path)
    config_count = files.got.count("config.pbtxt")
    files.faults.clear()
    assert {**first(), CONFIG: b"second", WEIGHTS: b"abcdefghijk"} == tree(repository.sync())
    assert config_count == files.got.count("config.pbtxt")


def test_bytes_that_are_not_those_of_the_digest_are_refused(repository, files):
    files.extra["weights"] = {"md5Hash": "eB5eJF1ptWaXm4bijSPyxw=="}
    assert first() == tree(repository.sync())
    files.put(**{WEIGHTS: b"9876543210"})
    files.extra["weights"] = {"md5Hash": "AAAAAAAAAAAAAAAAAAAAAA=="}
    with pytest.raises(InferenceServerError, match=r"came wrong: its MD5 is .*, must be 00000000000000000000000000000000"):
        repository.sync()
    assert first() == tree(repository.path)


def test_an_etag_that_is_no_digest_is_found_out_by_a_second_look(repository, files):
    files.extra["weights"] = {"ETag": '"00000000000000000000000000000000"'}
    assert first() == tree(repository.sync())
    assert files.got.count("weights") == 2


@pytest.mark.parametrize("name", ["../outside", "m/../../outside", "m//x", "m/a\\b", "m/a\0b", "m/" + "x" * 256])
def test_names_that_lead_out_of_the_folder_are_refused(repository, files, name, monkeypatch):
    listed = {f"/models/{name}": {"name": f"/models/{name}", "size": 1, "type": "file"}}
    monkeypatch.setattr(files, "find", lambda *_, **__: listed)
    with pytest.raises(InferenceServerError, match="can't be copied: a part of its name is"):
        repository.sync()
    assert tree(repository.path) == {}


@pytest.mark.parametrize("info", [{"type": "link"}, {"type": "file", "islink": True}])
def test_links_are_refused(repository, files, info):
    files.extra["weights"] = info
    with pytest.raises(InferenceServerError, match="links are not copied"):
        repository.sync()


def test_a_file_where_a_folder_is_is_refused(repository, files, monkeypatch):
    listed = {path: {"name": path, "size": 1, "type": "file"} for path in ("/models/m/1", "/models/m/1/weights")}
    monkeypatch.setattr(files, "find", lambda *_, **__: listed)
    with pytest.raises(InferenceServerError, match="'/models/m/1' is both a file and a folder"):
        repository.sync()


def test_a_repository_that_is_not_there_is_named(files, tmp_path):
    address = parse_address("memory://nowhere")
    with pytest.raises(InferenceServerError, match="'memory://nowhere' does not exist or has nothing in it") as caught:
        RemoteRepository(address, tmp_path / "cache", lambda: Store(address, files)).sync()
    assert caught.value.code == Code.NOT_FOUND


@pytest.mark.parametrize(("url", "extra"), [("gs://b/m", "gcs"), ("as://a/c/m", "azure")])
def test_a_missing_package_names_its_extra(url, extra, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, {"gs": "gcsfs", "as": "adlfs"}[url[:2]], None)
    with pytest.raises(InferenceServerError, match=rf"pip install 'naiad\[{extra}\]'"):
        open_store(parse_address(url), {})


def test_an_unknown_scheme_is_named():
    with pytest.raises(InferenceServerError, match="'nonsense://b/m' can't be opened: Protocol not known: nonsense"):
        open_store(parse_address("nonsense://b/m"), {})


def test_a_file_of_which_the_store_says_no_state_is_fetched_each_time(repository, files):
    files.extra["weights"] = {"created": None}
    repository.sync()
    files.put(**{WEIGHTS: b"9876543210"})
    assert tree(repository.sync()) == {**first(), WEIGHTS: b"9876543210"}


KILLED = """
import os, signal, sys
from pathlib import Path
import fsspec
from naiad.repository.remote.address import parse_address
from naiad.repository.remote.repository import RemoteRepository
from naiad.repository.remote.store import Store

files = fsspec.filesystem("memory")
files.pipe_file("/models/m/config.pbtxt", b"first")
files.pipe_file("/models/m/data/weights", b"0123456789")
get = files.get_file

def fall(remote, local, **more):
    if remote.endswith("weights"):
        Path(local).write_bytes(b"01234")
        os.kill(os.getpid(), signal.SIGKILL)
    get(remote, local, **more)

files.get_file = fall
address = parse_address("memory://models")
RemoteRepository(address, Path(sys.argv[1]), lambda: Store(address, files)).sync()
"""


def test_a_server_killed_in_the_middle_of_a_copy_leaves_nothing_that_is_taken_for_whole(repository, tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "cache")], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert tree(repository.path) == {}
    assert tree(repository.sync()) == first()
    left = [path.name for path in (tmp_path / "cache").rglob("*") if "incoming" in path.name or path.name.endswith(".part")]
    assert left == []

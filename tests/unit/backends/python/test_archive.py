"""Archives are unpacked once; a broken one, and one that would write or point outside its folder, is refused."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import environments
import pytest

from naiad.backends.python.archive import unpacked
from naiad.backends.python.settings import EnvironmentSettings
from naiad.errors import Code, InferenceServerError


@pytest.fixture
def settings(tmp_path: Path) -> EnvironmentSettings:
    return EnvironmentSettings(tmp_path / "cache")


def _member(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


def _folder_member(name: str) -> tarfile.TarInfo:
    info = _member(name, tarfile.DIRTYPE)
    info.mode = 0o555
    return info


def test_files_folders_and_links_within_are_unpacked(tmp_path: Path, settings: EnvironmentSettings):
    members = [
        _folder_member("lib"),
        ("lib/real", "text"),
        ("run", ""),
        environments.link("lib/soft", "real"),
        environments.link("top", "lib/../lib/real"),
        environments.link("hard", "lib/real", is_hard=True),
    ]
    folder = unpacked(environments.archive_of(tmp_path / "env.tar.gz", members), settings)
    assert {"text"} == {(folder / name).read_text() for name in ("lib/real", "lib/soft", "top", "hard")}
    assert (folder / "run").stat().st_mode & 0o777 == 0o755
    (folder / "lib" / "new").touch()


def test_equal_content_is_unpacked_once_wherever_it_lies(tmp_path: Path, settings: EnvironmentSettings):
    first = environments.archive_of(tmp_path / "a.tar.gz", [("file", "1")])
    copy = tmp_path / "b.tar.gz"
    copy.write_bytes(first.read_bytes())
    other = environments.archive_of(tmp_path / "c.tar.gz", [("file", "2")])
    assert unpacked(first, settings) == unpacked(copy, settings)
    assert unpacked(first, settings) != unpacked(other, settings)


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (("../out", ""), "written outside"),
        (("a/../../out", ""), "written outside"),
        (("/tmp/naiad-out", ""), "written outside"),
        (environments.link("l", "/etc"), "is a link to '/etc'"),
        (environments.link("a/l", "../../x"), "is a link to '../../x'"),
        (environments.link("h", "../x", is_hard=True), "is a link to '../x'"),
        (environments.link("h", "/etc/passwd", is_hard=True), "is a link to '/etc/passwd'"),
        (_member("pipe", tarfile.FIFOTYPE), "neither a file"),
        (_member("disk", tarfile.BLKTYPE), "neither a file"),
        (_member("tty", tarfile.CHRTYPE), "neither a file"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_member_that_leaves_the_folder_or_is_a_device_is_refused(tmp_path: Path, settings, member, reason: str):
    path = environments.archive_of(tmp_path / "env.tar.gz", [("fine", ""), member])
    with pytest.raises(InferenceServerError, match=f"isn't accepted: its member .*{reason}") as caught:
        unpacked(path, settings)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert not [path for path in settings.cache_directory.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    "members",
    [
        [environments.link("d", "sub"), ("d/file", "")],
        [environments.link("d", "sub"), ("d", "")],
        [_folder_member("sub"), environments.link("sub/up", ".."), environments.link("sub/up/l", "..")],
    ],
    ids=["file", "overwrite", "link"],
)
def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path, settings, members):
    with pytest.raises(InferenceServerError, match="lies behind a symbolic link"):
        unpacked(environments.archive_of(tmp_path / "env.tar.gz", members), settings)


def test_links_that_leave_the_folder_together_are_refused(tmp_path: Path, settings: EnvironmentSettings):
    members = [environments.link("a/b/c/up", "../../.."), environments.link("out", "a/b/c/up/../secret")]
    with pytest.raises(InferenceServerError, match="outside"):
        unpacked(environments.archive_of(tmp_path / "env.tar.gz", members), settings)


@pytest.mark.parametrize("keep", [0, 1, 40, -40, -9])
def test_a_cut_archive_is_refused(tmp_path: Path, settings: EnvironmentSettings, keep: int):
    path = environments.archive_of(tmp_path / "env.tar.gz", [("file", "some text " * 1000), ("b", "x")])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InferenceServerError, match="is no archive that can be unpacked") as caught:
        unpacked(path, settings)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_an_archive_with_flipped_bytes_is_refused(tmp_path: Path, settings: EnvironmentSettings):
    path = environments.archive_of(tmp_path / "env.tar.gz", [("file", "".join(map(str, range(5000))))])
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(InferenceServerError, match="is no archive that can be unpacked"):
        unpacked(path, settings)


@pytest.mark.parametrize("text", ["", "not an archive", "x" * 100_000])
def test_another_file_is_refused(tmp_path: Path, settings: EnvironmentSettings, text: str):
    path = tmp_path / "env.tar.gz"
    path.write_text(text)
    with pytest.raises(InferenceServerError, match=r"must be a tar\.gz made by conda-pack, a folder or a venv"):
        unpacked(path, settings)


def test_a_packed_environment_is_told_its_new_place_once(tmp_path: Path, settings: EnvironmentSettings):
    script = "import pathlib, sys\npathlib.Path(__file__).with_name('told').open('a').write(sys.argv[0] + '\\n')\n"
    members = [("bin/python", environments.wrapper_script()), ("bin/conda-unpack", script)]
    path = environments.archive_of(tmp_path / "env.tar.gz", members)
    folder = unpacked(path, settings)
    assert folder == unpacked(path, settings)
    assert [f"{folder}/bin/conda-unpack"] == (folder / "bin" / "told").read_text().splitlines()


def test_a_failing_conda_unpack_is_shown(tmp_path: Path, settings: EnvironmentSettings):
    members = [("bin/python", environments.wrapper_script()), ("bin/conda-unpack", "raise SystemExit('prefix is odd')")]
    with pytest.raises(InferenceServerError, match="its bin/conda-unpack failed: prefix is odd"):
        unpacked(environments.archive_of(tmp_path / "env.tar.gz", members), settings)


def test_without_filters_of_the_standard_library_the_same_is_refused(tmp_path: Path, settings, monkeypatch: pytest.MonkeyPatch):
    if sys.version_info >= (3, 12):
        pytest.skip("every release from 3.12 on has them, and warns without one")
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with pytest.raises(InferenceServerError, match="written outside"):
        unpacked(environments.archive_of(tmp_path / "a.tar.gz", [("../out", "")]), settings)
    odd = tarfile.TarInfo("setuid")
    odd.mode = 0o6777
    folder = unpacked(environments.archive_of(tmp_path / "b.tar.gz", [_folder_member("lib"), odd]), settings)
    assert [(folder / name).stat().st_mode & 0o7777 for name in ("lib", "setuid")] == [0o755, 0o755]

"""Where copies of remote repositories go, and that local ones stay where they are."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from naiad.config.options import ServerOptions
from naiad.repository.remote.address import parse_address
from naiad.repository.remote.opening import cache_directory, open_repositories


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        (Path("/flag"), {"TRITON_AWS_MOUNT_DIRECTORY": "/mount", "XDG_CACHE_HOME": "/xdg"}, "/flag"),
        (None, {"TRITON_AWS_MOUNT_DIRECTORY": "/mount", "XDG_CACHE_HOME": "/xdg"}, "/mount"),
        (None, {"TRITON_GCS_MOUNT_DIRECTORY": "/mount", "XDG_CACHE_HOME": "/xdg"}, "/xdg/naiad/models"),
        (None, {"XDG_CACHE_HOME": "relative"}, str(Path("~/.cache/naiad/models").expanduser())),
    ],
)
def test_the_flag_wins_over_tritons_variable_and_that_over_the_users_cache(given, environment, expected):
    assert str(cache_directory(parse_address("s3://b/m"), given, environment)) == expected


def test_local_and_remote_repositories_mix_in_the_order_they_were_given(tmp_path):
    fsspec.filesystem("memory").pipe_file("/naiad-mixed/m/config.pbtxt", b"c")
    options = ServerOptions(model_repository=(Path("/one"), "memory://naiad-mixed"), model_cache_directory=tmp_path / "cache")
    opened = open_repositories(options, {})
    assert opened.paths == (Path("/one"), opened.remote[0].path)
    assert (opened.paths[1] / "m" / "config.pbtxt").read_bytes() == b"c"

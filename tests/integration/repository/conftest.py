"""An S3-compatible server on loopback, as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
_RUNNING = re.compile(r"Running on http://127\.0\.0\.1:([0-9]+)")


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, **KEYS}
    )
    try:
        assert process.stderr is not None
        found = next(filter(None, map(_RUNNING.search, process.stderr)))
        yield int(found[1])
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def bucket(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """The store's files, with a bucket `bucket` that is empty before and after."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    files = s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{s3_port}", use_listings_cache=False, skip_instance_cache=True)
    files.mkdir("bucket")
    yield files
    files.rm("bucket", recursive=True)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB. Skips where nothing may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "naiad-test", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk of its own can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)

"""What the file systems of Google, Azure and Hugging Face are asked for: protocol, credentials, path. The stores are fakes."""

from __future__ import annotations

import json
import sys
import types

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from naiad.repository.remote.address import parse_address
from naiad.repository.remote.store import open_store


@pytest.fixture
def opened(monkeypatch):
    """Return a function that opens a URL with fakes in place of the stores, and returns the options that one was made with."""
    made: list[dict] = []

    class Fake(MemoryFileSystem):
        cachable = False

        def __init__(self, **options) -> None:
            super().__init__()
            self.store = {}
            self.pseudo_dirs = [""]
            made.append({key: value for key, value in options.items() if "cache" not in key})

        def find(self, path, **more):
            made[-1]["asked for"] = path
            self.pipe_file(f"/{path}/m/config.pbtxt", b"c")
            return super().find(path, **more)

    for package in ("gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    for protocol in ("gs", "abfs", "hf"):
        monkeypatch.setitem(_registry, protocol, Fake)

    def open_and_list(url: str, environment: dict[str, str]) -> dict:
        assert list(open_store(parse_address(url), environment).models()) == ["m"]
        return made[-1]

    return open_and_list


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("gs://bucket/models", {}, {"asked for": "bucket/models"}),
        ("hf://org/name/models", {}, {"asked for": "org/name/models"}),
        (
            "as://account/container/models",
            {"AZURE_STORAGE_KEY": "k"},
            {"account_name": "account", "account_key": "k", "asked for": "container/models"},
        ),
        (
            "as://account/container/models",
            {"AZURE_STORAGE_AUTH_TYPE": "managed_identity"},
            {"account_name": "account", "anon": False, "asked for": "container/models"},
        ),
        (
            "as://account/container/models",
            {},
            {"account_name": "account", "anon": True, "asked for": "container/models"},
        ),
    ],
)
def test_a_url_becomes_a_path_and_credentials_of_its_file_system(opened, url, environment, expected):
    assert opened(url, environment) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("gs://bucket/models", {"token": "/secrets/account.json", "asked for": "bucket/models"}),
        ("gs://other/models", {"asked for": "other/models"}),
        ("as://a/c/models", {"account_name": "a", "account_key": "k", "asked for": "c/models"}),
    ],
)
def test_the_file_of_credentials_counts_for_its_prefixes(opened, tmp_path, url, expected):
    path = tmp_path / "credentials.json"
    content = {
        "gs": {"gs://bucket": "/secrets/account.json"},
        "as": {"as://a/c": {"account_str": "a", "account_key": "k"}},
    }
    path.write_text(json.dumps(content))
    assert opened(url, {"TRITON_CLOUD_CREDENTIAL_PATH": str(path)}) == expected

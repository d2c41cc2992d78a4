"""Triton's URLs and credentials, row by row."""

from __future__ import annotations

import json

import pytest

from naiad.errors import InferenceServerError
from naiad.repository.remote.address import parse_address
from naiad.repository.remote.credentials import CREDENTIAL_FILE, storage_options


@pytest.mark.parametrize(
    ("text", "path", "endpoint", "account"),
    [
        ("s3://bucket/models", "bucket/models", "", ""),
        ("s3://bucket/models/", "bucket/models", "", ""),
        ("s3://10.0.0.1:9000/bucket/models", "bucket/models", "http://10.0.0.1:9000", ""),
        ("s3://https://store.example:443/bucket/m", "bucket/m", "https://store.example:443", ""),
        ("s3://http://store.example:80/bucket", "bucket", "http://store.example:80", ""),
        ("gs://bucket/models", "bucket/models", "", ""),
        ("as://account/container/models", "container/models", "", "account"),
        ("memory://models", "models", "", ""),
        ("https://host/models", "https://host/models/", "", ""),
    ],
)
def test_a_url_says_folder_endpoint_and_account(text, path, endpoint, account):
    address = parse_address(text)
    assert (path, endpoint, account) == (address.path, address.endpoint, address.account)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3://", "names no folder"),
        ("s3://bucket/../other", "names no folder"),
        ("s3://ftp://host:1/bucket", "must be s3://bucket/path"),
        ("s3://host:99999/bucket/m", "the port is 99999, must be from 1 to 65535"),
        ("as://account", "must be as://account/container/path"),
        ("file:///models", "give the path without file://"),
        ("http:///models", "it names no host"),
        ("://models", "is no URL"),
    ],
)
def test_a_url_that_names_no_folder_is_refused(text, said):
    with pytest.raises(InferenceServerError, match=said):
        parse_address(text)


@pytest.mark.parametrize("text", ["https://me:secret@host/models", "s3://https://me:secret@host:443/b/m"])
def test_a_password_in_a_url_is_refused_and_not_shown(text):
    with pytest.raises(InferenceServerError, match="credentials in the environment") as caught:
        parse_address(text)
    assert "secret" not in caught.value.message


def test_the_longest_prefix_of_the_credential_file_counts(tmp_path):
    file = tmp_path / "credentials.json"
    known = {"": {"key_id": "all", "secret_key": "x"}, "s3://b/m": {"key_id": "m", "secret_key": "y", "region": "eu-1"}}
    file.write_text(
        json.dumps({"s3": known, "gs": {"gs://b": "/key.json"}, "as": {"": {"account_str": "a", "account_key": "k"}}})
    )
    environment = {CREDENTIAL_FILE: str(file)}
    assert storage_options(parse_address("s3://b/m/x"), environment) == {
        "key": "m",
        "secret": "y",
        "client_kwargs": {"region_name": "eu-1"},
    }
    assert storage_options(parse_address("s3://other/m"), environment) == {"key": "all", "secret": "x"}
    assert storage_options(parse_address("gs://b/m"), environment) == {"token": "/key.json"}
    assert storage_options(parse_address("gs://c/m"), environment) == {}
    assert storage_options(parse_address("as://z/c/m"), environment) == {"account_name": "a", "account_key": "k"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"account_name": "z", "anon": True}),
        ({"AZURE_STORAGE_KEY": "k"}, {"account_name": "z", "account_key": "k"}),
        ({"AZURE_STORAGE_AUTH_TYPE": "managed_identity"}, {"account_name": "z", "anon": False}),
    ],
)
def test_azure_takes_its_key_or_an_attached_identity_from_the_environment(environment, expected):
    assert expected == storage_options(parse_address("as://z/c/m"), environment)


def test_an_endpoint_is_addressed_by_path():
    assert storage_options(parse_address("s3://h:1/b/m"), {}) == {
        "client_kwargs": {"endpoint_url": "http://h:1"},
        "config_kwargs": {"s3": {"addressing_style": "path"}},
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{secret", "is no JSON"),
        ("[]", "must hold an object"),
        ('{"s3": {"": {"key": "secret"}}}', "'s3' has key; known are secret_key, key_id"),
        ('{"s3": {"": "secret"}}', "must be an object of texts"),
    ],
)
def test_a_bad_credential_file_is_refused_and_not_quoted(tmp_path, content, said):
    file = tmp_path / "credentials.json"
    file.write_text(content)
    with pytest.raises(InferenceServerError, match=said) as caught:
        storage_options(parse_address("s3://b/m"), {CREDENTIAL_FILE: str(file)})
    assert "secret" not in caught.value.message.replace("secret_key", "")


def test_a_credential_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InferenceServerError, match="can't be read: No such file"):
        storage_options(parse_address("s3://b/m"), {CREDENTIAL_FILE: str(tmp_path / "none")})

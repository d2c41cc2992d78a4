"""Rules of API keys: which requests bring one, what a file of keys may hold, and what a renewal changes."""

from __future__ import annotations

import logging
from pathlib import Path

import asgi
import pytest
from fake_service import FakeService
from grpc_pair import GrpcPair, framed

from naiad.config.options import ApiKey, RestrictedGroup, ServerOptions
from naiad.errors import Code, InferenceServerError
from naiad.frontends.access import AccessRules
from naiad.frontends.api_keys import ApiKeys
from naiad.frontends.grpc.options import GrpcOptions
from naiad.frontends.http.app import create_app
from naiad.frontends.http.options import HttpOptions

KEY, OTHER = "first-key-0123456789", "other-key-0123456789"
KEYS = ApiKeys([ApiKey.of(KEY), ApiKey.of(OTHER)], open_groups=("health",))
MISSING = 'Bearer realm="naiad"'
INVALID = 'Bearer realm="naiad", error="invalid_token"'


def headers(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"h"), *((b"authorization", value.encode("latin-1")) for value in values)]


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return headers(f"Bearer {key}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "keys.txt"
    made.write_text(f"{KEY}\n")
    made.chmod(0o600)
    return made


def refusal(path: Path) -> str:
    with pytest.raises(InferenceServerError) as caught:
        ApiKeys((), path)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert str(path) in caught.value.message
    return caught.value.message


# --- requests


@pytest.mark.parametrize("key", [KEY, OTHER])
@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   "])
def test_each_key_opens_and_the_scheme_has_no_case(key, scheme):
    assert KEYS.check("inference", headers(scheme + key)) is None


@pytest.mark.parametrize(
    ("values", "challenge"),
    [
        ((), MISSING),
        (("",), MISSING),
        (("Basic dXNlcjpwYXNz",), MISSING),
        ((KEY,), MISSING),
        (("Bearer",), INVALID),
        (("Bearer ",), INVALID),
        ((f"Bearer{KEY}",), INVALID),
        ((f"Bearer {KEY[:-1]}",), INVALID),
        ((f"Bearer {KEY}x",), INVALID),
        ((f"Bearer {KEY.upper()}",), INVALID),
        ((f"Bearer {KEY} {OTHER}",), INVALID),
        (("Bearer \xff" + KEY,), INVALID),
        (("Bearer " + "x" * 60_000,), INVALID),
        ((f"Bearer {KEY}", f"Bearer {KEY}"), INVALID),
    ],
)
def test_everything_else_is_refused_with_a_challenge_and_without_the_key(values, challenge):
    refused = KEYS.check("inference", headers(*values))
    assert refused.challenge == challenge
    assert KEY[:-1] not in refused.text


def test_open_groups_need_none_and_what_belongs_to_no_group_does():
    assert KEYS.check("health", []) is None
    assert KEYS.check("", []).challenge == MISSING


def test_every_key_is_compared_whichever_is_right(monkeypatch):
    compared = []

    def compare(one: bytes, two: bytes) -> bool:
        compared.append(one)
        return one == two

    monkeypatch.setattr("naiad.frontends.api_keys.compare_digest", compare)
    for sent in (KEY, OTHER, "neither-0123456789"):
        compared.clear()
        KEYS.check("inference", bearer(sent))
        assert compared == [ApiKey.of(KEY).digest, ApiKey.of(OTHER).digest]


def test_a_restricted_api_asks_for_its_header_too():
    rules = AccessRules([RestrictedGroup(frozenset({"inference"}), "admin-key", "secret")], api_keys=KEYS)
    assert rules.check("inference", [(b"admin-key", b"secret")]).challenge == MISSING
    refused = rules.check("inference", bearer(KEY))
    assert (refused.challenge, "admin-key" in refused.text) == ("", True)
    assert rules.check("inference", [*bearer(KEY), (b"admin-key", b"secret")]) is None


def test_an_open_group_stays_restricted():
    rules = AccessRules([RestrictedGroup(frozenset({"health"}), "admin-key", "secret")], api_keys=KEYS)
    assert rules.check("health", []).challenge == ""
    assert rules.check("health", [(b"admin-key", b"secret")]) is None


# --- the file


def test_a_line_is_a_key_or_a_name_and_a_key(path):
    path.write_text(f"\ufeff# the team's\n\n  alice {KEY}\r\n\t{OTHER}\n  # end\n")
    keys = ApiKeys((), path)
    assert keys.check("inference", bearer(KEY)) is None
    assert keys.check("inference", bearer(OTHER)) is None
    assert keys.check("inference", bearer("alice-0123456789")) is not None


def test_keys_that_are_given_count_beside_those_of_the_file(path):
    keys = ApiKeys([ApiKey.of(OTHER)], path)
    assert [keys.check("inference", bearer(key)) for key in (KEY, OTHER)] == [None, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no keys"),
        ("# nothing\n\n", "has no keys"),
        ("short\n", "line 1: a key must be 16 to 512 characters"),
        (f"{KEY}\na b {OTHER}\n", "line 2: a line is '<key>' or '<name> <key>'"),
        (f"a/b {KEY}\n", "line 1: a line is"),
        (f"{'n' * 65} {KEY}\n", "line 1: a line is"),
        (f"ключ-{KEY}\n", "line 1: a key must be"),
        ("x" * 513, "line 1: a key must be"),
        ("\n".join(f"key-{number:016}" for number in range(1001)), "1001 API keys, at most 1000"),
        ("#" * ((1 << 20) + 1), "at most 1048576"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_line_and_rule_without_its_keys(path, text, expected):
    path.write_text(text)
    with pytest.raises(InferenceServerError) as caught:
        ApiKeys((), path)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert expected in caught.value.message
    assert not any(key in caught.value.message for key in (KEY, OTHER, "short", "x" * 20))


def test_what_cant_be_read_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "none")
    assert "no regular file" in refusal(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe" + KEY.encode())
    assert "not in UTF-8" in refusal(binary)


@pytest.mark.parametrize(("mode", "is_warned"), [(0o600, False), (0o640, False), (0o604, True)])
def test_a_file_that_everybody_may_read_is_warned_of(path, caplog, mode, is_warned):
    path.chmod(mode)
    ApiKeys((), path)
    assert [KEY in caplog.text, "can be read by every user" in caplog.text] == [False, is_warned]


# --- renewal


def test_a_renewal_changes_the_keys_and_says_so(path, caplog):
    caplog.set_level(logging.INFO)
    keys, changes = ApiKeys((), path), []
    keys.on_change(lambda: changes.append(1))
    path.write_text(f"{OTHER}\n")
    assert keys.check("inference", bearer(KEY)) is None
    keys.reload()
    assert (keys.check("inference", bearer(KEY)).challenge, keys.check("inference", bearer(OTHER))) == (INVALID, None)
    assert (changes, OTHER in caplog.text, "1 are in use" in caplog.text) == ([1], False, True)


@pytest.mark.parametrize("text", ["", "short\n", None])
def test_a_renewal_from_a_bad_file_changes_nothing_and_is_logged(path, caplog, text):
    keys, changes = ApiKeys((), path), []
    keys.on_change(lambda: changes.append(1))
    path.write_text(text) if text is not None else path.unlink()
    keys.reload()
    assert keys.check("inference", bearer(KEY)) is None
    assert (changes, "the old ones stay in use" in caplog.text) == ([], True)


def test_without_a_file_a_renewal_is_nothing(caplog):
    caplog.set_level(logging.DEBUG)
    KEYS.reload()
    assert caplog.text == ""


# --- nothing shows a key


def test_no_value_shows_a_key_or_its_digest():
    shown = repr(ServerOptions(api_key=(ApiKey.of(KEY, "alice"),)))
    assert "alice" in shown
    assert KEY not in shown
    assert repr(ApiKey.of(KEY).digest) not in shown


# --- the frontends


def app():
    return create_app(FakeService(), HttpOptions(api_keys=KEYS))


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize(
    "target", ["/", "/nowhere", "/v2", "/docs", "/openapi.json", "/v2/repository/index", "/v2/models/m", "/v2/health/live/"]
)
def test_http_asks_for_a_key_before_it_says_what_exists(method, target):
    reply = asgi.call(app(), method, target)
    assert (reply.status, reply.headers["www-authenticate"], reply.received) == (401, MISSING, 0)
    assert "API key" in reply.error


@pytest.mark.parametrize(
    "target", ["/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"]
)
def test_http_health_is_open(target):
    assert asgi.call(app(), "GET", target).status in (200, 400, 404)


def test_http_answers_with_a_key_as_it_would_without_keys():
    for target, status in (("/nowhere", 404), ("/v2", 200), ("/docs", 200)):
        assert asgi.call(app(), "GET", target, headers={"Authorization": f"Bearer {KEY}"}).status == status


def test_grpc_asks_for_a_key_before_it_says_what_exists():
    pair = GrpcPair(GrpcOptions(api_keys=KEYS))
    for path in (b"/t.T/Echo", b"/t.T/None"):
        refused = pair.call(path, framed(b"x"))
        assert pair.status(refused) == 16
        assert b"this server asks for an API key" in pair.fields(refused)[b"grpc-message"]
        assert pair.status(pair.call(path, framed(b"x"), authorization=b"Bearer wrong-0123456789")) == 16
    assert pair.rpcs == []
    assert pair.status(pair.call(b"/t.T/None", framed(b"x"), authorization=f"Bearer {KEY}".encode())) == 12
    assert pair.status(pair.call(body=framed(b"x"), authorization=f"Bearer {KEY}".encode())) == 0
    pair.call(b"/t.T/Wait", framed(b"x"), is_end=False)
    assert pair.rpcs[-1].messages == [b"x"]


def test_grpc_keeps_no_decision_of_removed_keys(path):
    keys = ApiKeys((), path)
    pair = GrpcPair(GrpcOptions(api_keys=keys))
    authorization = f"Bearer {KEY}".encode()
    assert [pair.status(pair.call(body=framed(b"x"), authorization=authorization)) for _ in range(3)] == [0, 0, 0]
    path.write_text(OTHER)
    keys.reload()
    assert pair.status(pair.call(body=framed(b"x"), authorization=authorization)) == 16

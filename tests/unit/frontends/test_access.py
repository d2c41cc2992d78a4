"""Rules of restricted APIs."""

from __future__ import annotations

from naiad.config.options import RestrictedGroup
from naiad.frontends.access import AccessRules

RULES = AccessRules(
    [
        RestrictedGroup(frozenset({"model-repository", "logging"}), "Admin-Key", "secret"),
        RestrictedGroup(frozenset({"statistics"}), "stats-key", "ü=:"),
    ]
)


def test_without_groups_everything_is_open():
    assert AccessRules(()).check("inference", []) is None


def test_an_api_of_no_group_is_open():
    assert RULES.check("inference", []) is None


def test_the_right_header_opens_every_api_of_its_group():
    for api in ("model-repository", "logging"):
        assert RULES.check(api, [(b"host", b"h"), (b"admin-key", b"secret")]) is None


def test_a_missing_header_is_named_in_the_spelling_of_the_operator():
    assert RULES.check("logging", [(b"host", b"h")]).text == "This API is restricted, expecting header 'Admin-Key'"


def test_the_value_is_compared_exactly():
    for value in (b"Secret", b"secre", b"secret ", b"", b"secretsecret"):
        assert RULES.check("logging", [(b"admin-key", value)]) is not None


def test_the_key_of_another_group_does_not_open():
    assert RULES.check("statistics", [(b"admin-key", b"secret")]).text == "This API is restricted, expecting header 'stats-key'"


def test_a_value_may_be_any_text():
    assert RULES.check("statistics", [(b"stats-key", "ü=:".encode())]) is None


def test_any_of_several_headers_of_that_name_opens():
    assert RULES.check("logging", [(b"admin-key", b"wrong"), (b"admin-key", b"secret")]) is None


def test_the_header_of_an_api_is_told_in_lower_case():
    assert (RULES.header_of("logging"), RULES.header_of("inference")) == ("admin-key", "")

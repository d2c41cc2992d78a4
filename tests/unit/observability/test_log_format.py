"""How a log line looks, and that no text in it can pretend to be another line."""

import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.observability.log_format import LineFormatter, escape


def record(message: object, *args: object, level: int = logging.INFO, exc_info: object = None) -> logging.LogRecord:
    made = logging.LogRecord("naiad.x", level, "/src/naiad/core/server.py", 42, message, args, exc_info)  # type: ignore[arg-type]
    made.process = 77
    made.created = 1718000005.000123
    return made


def test_the_default_line_is_letter_date_time_pid_place_message_in_utc() -> None:
    assert LineFormatter("default").format(record("loading: %s:%d", "m", 1)) == (
        "I0610 06:13:25.000123 77 server.py:42] loading: m:1"
    )


def test_the_iso_line_is_time_letter_pid_place_message_in_utc() -> None:
    assert LineFormatter("ISO8601").format(record("ready")) == "2024-06-10T06:13:25Z I 77 server.py:42] ready"


@pytest.mark.parametrize(
    ("level", "letter"),
    [
        (1, "I"),
        (logging.DEBUG, "I"),
        (logging.INFO, "I"),
        (logging.WARNING, "W"),
        (logging.ERROR, "E"),
        (logging.CRITICAL, "E"),
    ],
)
def test_verbose_messages_have_the_letter_of_information(level: int, letter: str) -> None:
    assert LineFormatter("default").format(record("x", level=level))[0] == letter


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\nI0101 forged", "a\\nI0101 forged"),
        ("\r\t\b\f", r"\r\t\b\f"),
        ("\x00\x1b[2J\x7f", r"\u0000\u001b[2J\u007f"),
        ("\x85\u2028\u2029", r"\u0085\u2028\u2029"),
        ("\u202e", r"\u202e"),
        ("\udc80", r"\udc80"),
        ("a\\nb", r"a\\nb"),
        ('it\'s "grün" 模型 🌊', 'it\'s "grün" 模型 🌊'),
    ],
)
def test_control_characters_are_escaped_and_other_text_stays(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@given(st.text())
def test_an_escaped_text_is_one_line_that_json_reads_back(text: str) -> None:
    escaped = escape(text)
    assert len(escaped.splitlines()) <= 1
    quoted = escaped.replace('"', r"\"")
    assert json.loads(f'"{quoted}"') == text


def test_a_message_of_a_client_cannot_begin_a_line() -> None:
    assert len(LineFormatter("default").format(record("model '%s'", "m\nE0101 x")).splitlines()) == 1


def test_the_lines_of_a_traceback_are_indented_and_escaped() -> None:
    try:
        raise RuntimeError("bad\nE0101 00:00:00.000000 1 forged.py:1] \x1b[2Jtext")
    except RuntimeError:
        text = LineFormatter("default").format(record("failed", level=logging.ERROR, exc_info=sys.exc_info()))
    first, *rest = text.split("\n")
    assert first.endswith("] failed")
    assert rest[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in rest)
    assert "\x1b" not in text

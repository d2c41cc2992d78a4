"""How a log line looks: Triton's default format and its ISO 8601 one.

Owns the formatter. A message may carry a client's text, so nothing in it can begin a new line or move a terminal's cursor.
"""

from __future__ import annotations

import logging
import re
import traceback
from datetime import datetime, timezone

LOG_FORMATS = ("default", "ISO8601")
"""The names of the formats, as `--log-format` and the logging extension know them."""

# Control characters, line and paragraph separators, marks that turn the direction of text, half surrogates; and the
# backslash, so that an escape can be told from the same text in a message.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\\\\]")
_SHORT_ESCAPES = {"\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}


class LineFormatter(logging.Formatter):
    """Formats a record in one of `LOG_FORMATS`; times are UTC.

    default: `<L><MMDD> <HH:MM:SS.ffffff> <pid> <file>:<line>] <message>`
    ISO8601: `<YYYY-MM-DD>T<hh:mm:ss>Z <L> <pid> <file>:<line>] <message>`

    L is E, W or I, which stands for verbose messages too. The lines of a traceback follow, indented: a line that starts in the
    first column is always a record's first.
    """

    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._head = _iso8601_head if log_format == "ISO8601" else _default_head

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        place = f"{record.process} {escape(record.filename)}:{record.lineno}"
        lines = [f"{self._head(record)} {place}] {escape(record.getMessage())}"]
        lines += [f"  {escape(line)}" for line in _stack_lines(record)]
        return "\n".join(lines)


def escape(text: str) -> str:
    r"""Return `text` with what could forge a line or steer a terminal as JSON's escapes: a newline is `\n`."""
    return _UNSAFE.sub(lambda match: _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}", text)


def _stack_lines(record: logging.LogRecord) -> list[str]:
    """Return the lines of the record's traceback and of its stack, as far as it has them."""
    text = record.stack_info or ""
    if record.exc_info and record.exc_info[0] is not None:
        text = "".join(traceback.format_exception(*record.exc_info)) + text
    return text.rstrip("\n").split("\n") if text else []


def _default_head(record: logging.LogRecord) -> str:
    return f"{_letter(record.levelno)}{_time(record):%m%d %H:%M:%S.%f}"


def _iso8601_head(record: logging.LogRecord) -> str:
    return f"{_time(record):%Y-%m-%dT%H:%M:%SZ} {_letter(record.levelno)}"


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, timezone.utc)


def _letter(level: int) -> str:
    if level >= logging.ERROR:
        return "E"
    return "W" if level >= logging.WARNING else "I"

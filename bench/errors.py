"""The two ways in which a benchmark run ends without a figure.

Exception
  ├─ BenchError     something is wrong: the run fails, and no table is written
  └─ Unavailable    this machine can't provide a part: the table says what was left out, and why
"""

from __future__ import annotations


class BenchError(Exception):
    """A wrong answer, failed requests, or a server that doesn't start: its figures would mean nothing."""


class Unavailable(Exception):  # noqa: N818 - not an error: the run goes on without this part
    """A tool, package or server that can't be had on this machine; the text says which and why."""

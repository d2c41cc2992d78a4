"""A worker's first word is checked: the frames' version, then Python's."""

import json

import pytest

from naiad.execution.process.life.child.hello import problem_of
from naiad.worker.frames import VERSION, Frame, Kind


def hello(version: int = VERSION, tail: bytes | None = None, **message: object) -> Frame:
    return Frame(Kind.HELLO, 0, version, 0, 0, 0, 0, json.dumps(message).encode() if tail is None else tail)


@pytest.mark.parametrize("python", ["3.10.0", "3.11.7", "3.13.0rc1", "3.14", "4.0.0"])
def test_python_from_3_10_on_will_do(python):
    assert problem_of(hello(python=python)) == ""


def test_an_older_python_is_refused_by_its_version():
    assert problem_of(hello(python="3.9.18")) == "it runs on Python 3.9.18, a model needs Python 3.10 or later"


def test_another_version_of_the_frames_is_refused_by_both_numbers():
    text = problem_of(hello(VERSION + 1, python="3.11.7"))
    assert text == f"it speaks version {VERSION + 1} of the frames, this server {VERSION}; its naiad must be the server's"


@pytest.mark.parametrize("tail", [b"", b"\xff", b"[]", b"{}", b'{"python": 3}', b'{"python": ""}', b'{"python": "x.y"}', b"3"])
def test_a_hello_that_cant_be_read_is_shown(tail):
    text = problem_of(hello(tail=tail))
    assert text == f"its first frame doesn't say its Python's version: {tail!r}"

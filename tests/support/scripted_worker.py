"""Worker processes that do what a test says, in place of Python's model runtime: the server's side is tested alone.

A script is run by an "interpreter" that is the script itself. It has `say`, `hello`, `next_frame` and `serve` to speak frames.
"""

from __future__ import annotations

import sys
from pathlib import Path

from naiad.backends.base import WorkerProgram

_PRELUDE = f"""#!{sys.executable}
import json, os, signal, socket, sys, threading, time
from naiad.worker.frames import *

control, descriptors = (socket.socket(fileno=int(fd)) for fd in sys.argv[2:4])
_reader, _waiting = FrameReader(), []


def say(kind, frame_id=0, message=None, **more):
    control.sendall(pack(kind, frame_id, b"" if message is None else json.dumps(message).encode(), **more))


def hello(version=VERSION, python="3.11.7"):
    say(Kind.HELLO, version, {{"pid": os.getpid(), "python": python, "numpy": "2.3.0"}})


def next_frame():
    while not _waiting:
        data = control.recv(1 << 18)
        if not data:
            os._exit(0)
        _waiting.extend(_reader.feed(data))
    return _waiting.pop(0)


def serve(**answers):
    # Answer each question with its own message, or by the function that has its name.
    hello()
    while True:
        frame = next_frame()
        answer = answers.get(Kind(frame.kind).name.lower())
        if answer is not None:
            answer(frame)
        elif frame.kind < Kind.EXECUTE and frame.kind >= Kind.LOAD:
            say(Kind.DONE, frame.id, json.loads(frame.tail))
        if frame.kind == Kind.FINALIZE:
            return


"""


def scripted_program(folder: Path, script: str) -> WorkerProgram:
    """Return a program whose worker runs `script`, which is kept in `folder`."""
    path = folder / "python"
    path.write_text(_PRELUDE + script)
    path.chmod(0o755)
    return WorkerProgram(path, True, {}, folder / "1" / "model.py", folder, folder / "1")

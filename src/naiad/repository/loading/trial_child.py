"""The program of a trial: `python …/trial_child.py ANSWER_FD PARENT_PID`, with the request as the first line of its stdin.

Owns the process: that it dies with the server, that the system ends it first when memory runs out, and its one answer. Run by
path, so nothing of naiad is imported before the request has said where modules are found.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_FIRST_TO_END = "1000"

# Models that live in processes anyway aren't tried.
_NO_WORKERS: Any = None


def main(answer_fd: int, parent: int) -> None:
    """Try the model of the request and say how it went: a line of JSON with "code" ("" when it went well) and "message"."""
    _die_with(parent)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END)
    with os.fdopen(0, "rb", closefd=False, buffering=0) as stdin:
        request = json.loads(stdin.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    sys.path[:] = request["path"]
    answer = _try(request)
    os.write(answer_fd, json.dumps(answer).encode() + b"\n")
    # Without the engine's clean-up, which may hang.
    os._exit(0)


def _die_with(parent: int) -> None:
    """Let the system kill this process when the server dies, whatever an engine is doing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end_with_stdin() -> None:
    """The same where the system can't: the server holds the other end."""
    os.read(0, 1)
    os._exit(1)


def _try(request: dict[str, Any]) -> dict[str, str]:
    from naiad.backends.table import BackendTable  # noqa: PLC0415 — see the module
    from naiad.devices.machine import open_devices  # noqa: PLC0415
    from naiad.errors import InferenceServerError  # noqa: PLC0415
    from naiad.proto import message_class  # noqa: PLC0415
    from naiad.repository.layout import ModelSource  # noqa: PLC0415
    from naiad.repository.loader import Loader, LoadSettings  # noqa: PLC0415

    config = message_class("inference.ModelConfig").FromString(base64.b64decode(request["config"]))
    source = ModelSource(
        request["name"],
        Path(request["directory"]),
        None,
        {int(number): Path(path) for number, path in request["versions"].items()},
        request["file_name"],
        config,
    )
    backend_directory = request["backend_directory"]
    backends = BackendTable(backend_directory=None if backend_directory is None else Path(backend_directory))
    devices, _ = open_devices((), tuple(request["min_capability"]))
    loader = Loader(backends, LoadSettings(request["is_auto_complete"], request["backend_settings"], devices), _NO_WORKERS)
    try:
        loader.load_first(loader.prepare(source))
    except InferenceServerError as error:
        return {"code": error.code.value, "message": error.message}
    return {"code": "", "message": ""}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

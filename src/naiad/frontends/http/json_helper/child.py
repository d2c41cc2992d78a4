"""The JSON helper itself: answers one frame after the other until its input ends.

Owns nothing but this loop; the work is the codecs'. Runs as `python -m naiad.frontends.http.json_helper.child`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from typing import Any

from naiad.errors import Code, InferenceServerError
from naiad.frontends.http.json_helper import frames
from naiad.frontends.http.json_helper.frames import Buffer, Pipe
from naiad.wire.binary_form import request_in_binary_form, response_of_parts
from naiad.wire.kserve_response import encode_infer
from naiad.wire.limits import RequestLimits


def serve(source: Pipe, target: Pipe) -> None:
    """Answer frames from `source` on `target` until the server closes its end."""
    while True:
        try:
            kind, value, body = frames.receive(source)
        except EOFError:
            return
        try:
            answer, parts = _answer(kind, value, body)
        except InferenceServerError as error:
            frames.send(target, frames.FAILED, {"code": error.code.value, "message": error.message}, ())
        except MemoryError:
            failure = {"code": Code.UNAVAILABLE.value, "message": "there is not enough memory for this much JSON"}
            frames.send(target, frames.FAILED, failure, ())
        else:
            frames.send(target, frames.DONE, answer, parts)


def _answer(kind: int, value: dict[str, Any], body: Buffer) -> tuple[Any, Sequence[Buffer]]:
    """Return the answer: the size of the JSON part (None: all is JSON), and the bytes."""
    if kind == frames.READ_REQUEST:
        text, blobs = request_in_binary_form(body, value["header_length"], RequestLimits(value["limit"]))
        return len(text), [text, *blobs]
    encoded = encode_infer(*response_of_parts(value, body))
    return encoded.header_length, encoded.buffers


if __name__ == "__main__":
    # Whoever waits for a small answer comes first where cores are few.
    os.nice(5)
    serve(FileIO(0), FileIO(1, "w"))

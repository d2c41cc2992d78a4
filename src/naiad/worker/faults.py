"""Texts about exceptions of a model: short ones for clients, whole ones for the log.

Owns their form and length.
"""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

MAX_MESSAGE_CHARS = 2000
_MAX_TRACEBACK_CHARS = 20_000
_OWN_FOLDER = str(Path(__file__).parent)
_NOT_THE_MODEL = (_OWN_FOLDER, "<frozen importlib", str(Path(importlib.__file__).parent))


def short(error: BaseException) -> str:
    """Return type, text and the place in the model's code where it was raised, at most some 2,000 characters."""
    text = f"{type(error).__name__}: {cut(_text_of(error), MAX_MESSAGE_CHARS)}"
    place = _place_of(error)
    return f"{text}\n\nAt:\n  {place}\n" if place else text


def whole(error: BaseException) -> str:
    """Return the whole traceback, without the worker's own frames at its beginning."""
    begin = error.__traceback__
    while begin is not None and begin.tb_next is not None and begin.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        begin = begin.tb_next
    lines = traceback.format_exception(type(error), error, begin)
    return cut("".join(lines), _MAX_TRACEBACK_CHARS)


def cut(text: str, limit: int) -> str:
    """Return `text`, or its beginning and how much was left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} characters more)"


def _place_of(error: BaseException) -> str:
    """Return where in the model's code it was raised, or which line of it can't be read; "" for neither."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}({error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_THE_MODEL)]
    return f"{frames[-1].filename}({frames[-1].lineno}): {frames[-1].name}" if frames else ""


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:
        return f"(its text can't be had: {type(second).__name__})"

"""`TritonError`, which a response carries, and `TritonModelException`, which calls of the model API raise.

    Exception
      └─ TritonModelException   a call of the model API was wrong, or what it asked for failed

Owns the codes that models see. The names that go over the wire are those of `naiad.errors.Code`.
"""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """What kind of failure it is, numbered as Triton numbers them."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


_NAMES = {ErrorCode.INVALID_ARG: "INVALID_ARGUMENT", ErrorCode.UNSUPPORTED: "UNIMPLEMENTED"}
_CODES = {_NAMES.get(code, code.name): code for code in ErrorCode} | {"DEADLINE_EXCEEDED": ErrorCode.UNAVAILABLE}


class TritonModelException(Exception):  # noqa: N818 — Triton's name
    """A call of the model API was wrong, or what it asked for failed."""


def check_type(what: str, value: object, *kinds: type) -> None:
    """Raise TritonModelException unless `value` is of one of `kinds`; `what` begins the text."""
    if not isinstance(value, kinds):
        names = " or ".join([kind.__name__ for kind in kinds])
        raise TritonModelException(f"{what} must be of type {names}, not {type(value).__name__}")


def checked_whole(what: str, value: object, most: int) -> int:
    """Return `value` as an int when it is a whole number from 0 to `most`, of numpy or Python.

    Raises TritonModelException otherwise, whose text begins with `what`.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise TritonModelException(f"{what} must be a whole number from 0 to {most}, not {value!r:.200}")
    return number


class TritonError:
    """The error of a response. `code` is one of the class's constants."""

    __slots__ = ("_code", "_message")

    UNKNOWN: ClassVar[ErrorCode] = ErrorCode.UNKNOWN
    INTERNAL: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    NOT_FOUND: ClassVar[ErrorCode] = ErrorCode.NOT_FOUND
    INVALID_ARG: ClassVar[ErrorCode] = ErrorCode.INVALID_ARG
    UNAVAILABLE: ClassVar[ErrorCode] = ErrorCode.UNAVAILABLE
    UNSUPPORTED: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS: ClassVar[ErrorCode] = ErrorCode.ALREADY_EXISTS
    CANCELLED: ClassVar[ErrorCode] = ErrorCode.CANCELLED

    def __init__(self, message: str, code: int = ErrorCode.INTERNAL) -> None:
        """Raises TritonModelException when `message` is no text or `code` no code."""
        check_type("the message of a TritonError", message, str)
        if code not in tuple(ErrorCode):
            raise TritonModelException(f"{code!r} isn't a code of TritonError, such as TritonError.INVALID_ARG")
        self._message = message
        self._code = ErrorCode(code)

    @classmethod
    def received(cls, code_name: str, message: str) -> TritonError:
        """Return the error that a message of the server speaks of; a code that models don't know becomes UNKNOWN."""
        return cls(message, _CODES.get(code_name, ErrorCode.UNKNOWN))

    def message(self) -> str:
        """Return the text."""
        return self._message

    def code(self) -> ErrorCode:
        """Return the code."""
        return self._code

    def code_name(self) -> str:
        """Return the name that `naiad.errors.Code` has for the code."""
        return _NAMES.get(self._code, self._code.name)

    def __repr__(self) -> str:
        return f"TritonError({self._message!r}, {self._code.name})"

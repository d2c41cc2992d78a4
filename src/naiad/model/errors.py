"""`ModelError`: an error that a model means its clients to read.

    Exception
      └─ ModelError   code + text; what a called model answered, too

Owns the way between it and the model API's errors. Any other exception of a model is its own fault: INTERNAL.
"""

from __future__ import annotations

from naiad.errors import Code
from naiad.worker.api.errors import TritonError


class ModelError(Exception):
    """`code` is a `Code` or its name in any case, as "not_found". Raised, it is the answer to all requests of the batch; as an
    item of the list that `infer` returns it is the answer to one.
    """

    def __init__(self, code: Code | str, text: str) -> None:
        """Raises ValueError when there is no such code."""
        super().__init__(text)
        self.code = code if isinstance(code, Code) else Code(code.upper())
        self.text = text


def from_triton(error: TritonError) -> ModelError:
    """Return the error of a response."""
    return ModelError(error.code_name(), error.message())


def to_triton(error: ModelError) -> TritonError:
    """Return the error for a response."""
    return TritonError.received(error.code.value, error.text)

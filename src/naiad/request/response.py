"""`InferResponse`: one answer of a model to one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from naiad.request.call import Parameter, RegionSlice
from naiad.tensor.datatype import Datatype


@dataclass(slots=True)
class OutputTensor:
    """One output: `array` has the client's shape and the numpy dtype of `datatype` (BF16 as uint16 bits, BYTES as an object
    array of bytes) and is C-contiguous, or becomes so in the codec. It may be a view of a batch's output. `region` is set when
    its elements have been put into a client's shared memory: `size_bytes` of them, and they stay out of the response.
    """

    name: str
    datatype: Datatype
    array: np.ndarray[Any, Any]
    region: RegionSlice | None = None


Timing = tuple[int, int, int, int]
"""What the execution behind an answer took, in nanoseconds: waiting, gathering inputs, running the model, splitting outputs."""


class KeptAnswer(Protocol):
    """An answer that the response cache keeps, as a frontend may give it to further requests of the same bytes. Loop thread
    only.
    """

    def repeat(self) -> bool:
        """Count a further request that is answered like this, now; or return False, and count nothing: the cache has let go of
        the answer, or the model would answer otherwise by now.
        """


@dataclass(slots=True)
class InferResponse:
    """One answer: unary inference has one of it, a decoupled model 0..n. `timing` is None where nobody has measured. `kept` is
    what the response cache says of an answer that came from it.
    """

    model_name: str
    model_version: str
    id: str
    outputs: list[OutputTensor]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    timing: Timing | None = None
    kept: KeptAnswer | None = None

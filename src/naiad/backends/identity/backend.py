"""The identity backend: output i is input i, after an optional delay. For tests, benchmarks and first steps.

Parameter `execute_delay_ms`: how long each execution takes at least, in milliseconds (0 by default).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from naiad.backends.base import Array, BackendInstance, ModelFiles
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.config.signature import ModelSignature
from naiad.errors import invalid_argument

DELAY_PARAMETER = "execute_delay_ms"


class IdentityBackend:
    """Copies nothing: an output array is the input array itself."""

    name = "identity"
    releases_gil = True
    default_instance_count = 1
    may_omit_outputs = True

    @classmethod
    def signature(cls, files: ModelFiles) -> ModelSignature | None:
        """There is no file to read a signature from: the config says everything."""
        return None

    @classmethod
    def load(cls, plan: ModelPlan, instance: InstancePlan, files: ModelFiles) -> BackendInstance:
        """Check that inputs and outputs pair up: as many of both, with equal datatypes, shapes of equal size."""
        if len(plan.inputs) != len(plan.outputs):
            raise invalid_argument(
                f"model '{plan.name}': the identity backend needs as many outputs as inputs, "
                f"got {len(plan.inputs)} inputs and {len(plan.outputs)} outputs"
            )
        for source, target in zip(plan.inputs, plan.outputs):
            if source.datatype is not target.datatype:
                raise invalid_argument(
                    f"model '{plan.name}': output '{target.name}' is {target.datatype} but the input it copies, "
                    f"'{source.name}', is {source.datatype}"
                )
        return _IdentityInstance(plan, _delay_seconds(plan))

    @classmethod
    def must_run_in_place(cls, plan: ModelPlan) -> bool:
        """Handing no work to a thread costs more than the work."""
        return _delay_seconds(plan) == 0


class _IdentityInstance:
    """See `BackendInstance`."""

    def __init__(self, plan: ModelPlan, delay_seconds: float) -> None:
        self._source_of = {target.name: source.name for source, target in zip(plan.inputs, plan.outputs)}
        self._delay_seconds = delay_seconds

    def execute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Return the inputs under their outputs' names; an optional input that is absent has no output."""
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        source_of = self._source_of
        return {name: inputs[source_of[name]] for name in outputs if source_of[name] in inputs}

    def close(self) -> None:
        """Nothing is held."""


def _delay_seconds(plan: ModelPlan) -> float:
    text = plan.parameters.get(DELAY_PARAMETER, "0")
    try:
        delay_ms = float(text)
    except ValueError:
        delay_ms = -1.0
    if not 0 <= delay_ms < float("inf"):
        raise invalid_argument(
            f"model '{plan.name}': parameter '{DELAY_PARAMETER}' is '{text}', must be a number of milliseconds >= 0"
        )
    return delay_ms / 1000

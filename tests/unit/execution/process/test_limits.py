"""A model's limits are whole numbers and truths; anything else is refused with the parameter's name."""

from __future__ import annotations

import pytest

from naiad.errors import Code, InferenceServerError
from naiad.execution.process.context import WorkerLimits
from naiad.execution.process.limits import limits_of


def test_without_parameters_there_is_no_limit():
    assert limits_of({}, "m") == WorkerLimits()


def test_limits_have_the_units_of_their_names():
    parameters = {
        "execution_timeout_ms": "1500",
        "allow_execution_timeout_override": "TRUE",
        "worker_memory_limit_mb": "3",
        "retry_on_worker_death": "1",
    }
    assert limits_of(parameters, "m") == WorkerLimits(1.5, True, 3 << 20, True)


@pytest.mark.parametrize("name", ["execution_timeout_ms", "worker_memory_limit_mb"])
@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", " 1", "\u0661", "1000000001", "9" * 5000])
def test_what_is_no_number_is_refused(name, text):
    with pytest.raises(InferenceServerError, match=f"model 'm'.*'{name}'") as caught:
        limits_of({name: text}, "m")
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["allow_execution_timeout_override", "retry_on_worker_death"])
@pytest.mark.parametrize("text", ["", "2", "yes"])
def test_what_is_no_truth_is_refused(name, text):
    with pytest.raises(InferenceServerError, match=f"model 'm'.*'{name}'") as caught:
        limits_of({name: text}, "m")
    assert caught.value.code is Code.INVALID_ARGUMENT

"""What a program may say of a function, and what its configuration becomes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import naiad
from naiad import Batching, InferenceServerError, Tensor, model_function
from naiad.server.embedded.config import model_config
from naiad.server.embedded.declaration import declare, name_of

X, Y = Tensor("x", np.float32, (3, -1)), Tensor("y", str, ())


def test_a_decorated_function_can_still_be_called():
    @model_function([X], [Y])
    def double(x):
        return x * 2

    assert double(4) == 8
    assert double.name == "double"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Tensor("", np.float32, ()), "needs a name"),
        (lambda: Tensor("x", np.float32, (-2,)), "size below -1"),
        (lambda: Tensor("x", np.complex64, ()), "tensor 'x': dtype"),
        (lambda: declare(["x"], [Y]), "inputs must be a list of Tensor, one of them is 'x'"),
        (lambda: Batching(0), "max_batch_size is 0, must be 1 or more"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(make, text):
    with pytest.raises(InferenceServerError, match=text):
        make()


def test_the_configuration_says_what_was_declared():
    config = model_config("m", declare([X], [Y], Batching(8, 100, (4, 8))), 2)
    assert (config.name, config.backend, config.max_batch_size) == ("m", "function", 8)
    assert (config.input[0].name, list(config.input[0].dims)) == ("x", [3, -1])
    assert config.dynamic_batching.max_queue_delay_microseconds == 100
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8]
    assert config.instance_group[0].count == 2


def test_one_value_an_item_has_a_dimension_for_clients_only():
    output = model_config("m", declare([X], [Y]), 1).output[0]
    assert list(output.dims) == [1]
    assert output.HasField("reshape")
    assert list(output.reshape.shape) == []


def test_without_batching_there_is_no_batcher():
    config = model_config("m", declare([X], [Y], batching=False), 1)
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")


def test_an_object_is_called_as_its_class():
    class Net:
        def __call__(self, x):
            return x

    assert name_of(Net()) == "Net"


def test_everything_that_naiad_offers_is_there():
    assert all(getattr(naiad, name) is not None for name in dir(naiad))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        naiad.nothing  # noqa: B018


def test_importing_naiad_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import naiad; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['naiad']\n"

"""What every backend must do, as a test class: a backend's own test derives from it and says how to make one of its models.

Owns the rules of `naiad.backends.base`. What a single backend does besides belongs to its unit tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from naiad.backends.base import Array, Backend, BackendInstance, ModelFiles
from naiad.config.plan import ModelPlan
from naiad.errors import Code, InferenceServerError
from naiad.tensor import shape as shapes

Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Example:
    """A model that batches, whose outputs have one row for each row of its inputs, and where its files are."""

    plan: ModelPlan
    files: ModelFiles


class BackendContract:
    """Derive from it and give `backend` and `example`."""

    backend: type[Backend]
    has_model_file = True
    """Whether the backend reads a file (a model without one can't be corrupt)."""

    def example(self, folder: Path) -> Example:
        """Return a model with at least two outputs where the backend can have them, its files in `folder`."""
        raise NotImplementedError

    @pytest.fixture
    def made(self, tmp_path: Path) -> Example:
        return self.example(tmp_path)

    @pytest.fixture
    def instance(self, made: Example) -> BackendInstance:
        return self._load(made)

    def test_a_batch_gives_every_output_asked_for(self, made: Example, instance: BackendInstance):
        names = [tensor.name for tensor in made.plan.outputs]
        results = instance.execute(_inputs(made.plan, 3), names)
        assert set(names) <= set(results)
        for tensor in made.plan.outputs:
            array = results[tensor.name]
            assert (tensor.datatype.numpy, 3) == (array.dtype, array.shape[0])
            assert shapes.matches(array.shape, tensor.backend_shape)

    def test_one_output_may_be_asked_for_alone(self, made: Example, instance: BackendInstance):
        inputs = _inputs(made.plan, 2)
        everything = instance.execute(inputs, [tensor.name for tensor in made.plan.outputs])
        for tensor in made.plan.outputs:
            alone = instance.execute(inputs, [tensor.name])
            np.testing.assert_array_equal(alone[tensor.name], everything[tensor.name])

    def test_a_batch_of_n_is_n_batches_of_one(self, made: Example, instance: BackendInstance):
        names = [tensor.name for tensor in made.plan.outputs]
        inputs = _inputs(made.plan, 5)
        together = instance.execute(inputs, names)
        for row in range(5):
            single = instance.execute({name: array[row : row + 1] for name, array in inputs.items()}, names)
            for name in names:
                _assert_same(together[name][row : row + 1], single[name])

    def test_a_batch_of_zero_rows_gives_zero_rows(self, made: Example, instance: BackendInstance):
        names = [tensor.name for tensor in made.plan.outputs]
        results = instance.execute(_inputs(made.plan, 0), names)
        assert [0] * len(names) == [results[name].shape[0] for name in names]

    def test_inputs_are_never_written_to(self, made: Example, instance: BackendInstance):
        inputs = _inputs(made.plan, 4)
        before = {name: array.copy() for name, array in inputs.items()}
        for array in inputs.values():
            array.flags.writeable = False
        instance.execute(inputs, [tensor.name for tensor in made.plan.outputs])
        for name, array in inputs.items():
            np.testing.assert_array_equal(before[name], array)

    def test_results_stay_when_the_next_batch_runs(self, made: Example, instance: BackendInstance):
        names = [tensor.name for tensor in made.plan.outputs]
        first = instance.execute(_inputs(made.plan, 3, seed=1), names)
        kept = {name: first[name].copy() for name in names}
        instance.execute(_inputs(made.plan, 3, seed=2), names)
        for name in names:
            np.testing.assert_array_equal(kept[name], first[name])

    def test_closing_one_instance_leaves_the_others_running(self, made: Example, instance: BackendInstance):
        other = self._load(made)
        instance.close()
        names = [tensor.name for tensor in made.plan.outputs]
        assert set(names) <= set(other.execute(_inputs(made.plan, 1), names))
        other.close()

    def test_the_signature_names_the_tensors_of_the_config(self, made: Example):
        signature = self.backend.signature(made.files)
        if signature is None:
            assert not self.has_model_file
            return
        for plans, tensors in ((made.plan.inputs, signature.inputs), (made.plan.outputs, signature.outputs)):
            assert [(item.name, item.datatype.name) for item in plans] == [(item.name, item.datatype) for item in tensors]

    @pytest.mark.parametrize("content", [b"", b"\xff\x00not a model", None], ids=["empty", "garbage", "absent"])
    def test_a_bad_model_file_is_an_invalid_argument_that_names_it(self, made: Example, content: bytes | None):
        if not self.has_model_file:
            pytest.skip("this backend reads no file")
        if content is None:
            made.files.path.unlink()
        else:
            made.files.path.write_bytes(content)
        for attempt in (lambda: self.backend.signature(made.files), lambda: self._load(made)):
            with pytest.raises(InferenceServerError) as caught:
                attempt()
            assert caught.value.code is Code.INVALID_ARGUMENT
            assert str(made.files.path) in caught.value.message
            assert made.plan.name in caught.value.message

    def test_the_class_says_what_the_server_must_know(self, made: Example):
        assert isinstance(self.backend.name, str)
        assert isinstance(self.backend.releases_gil, bool)
        assert self.backend.default_instance_count >= 1
        assert isinstance(self.backend.must_run_in_place(made.plan), bool)

    def _load(self, made: Example) -> BackendInstance:
        return self.backend.load(made.plan, made.plan.instances[0], made.files)


def _inputs(plan: ModelPlan, rows: int, seed: int = 0) -> dict[str, Array]:
    """Return random inputs of `rows` rows; variable sizes are 3."""
    random = np.random.default_rng(seed)
    arrays = {}
    for tensor in plan.inputs:
        shape = (rows, *(3 if size == shapes.VARIABLE else size for size in tensor.backend_shape[1:]))
        numbers = random.integers(0, 100, shape)
        arrays[tensor.name] = np.ascontiguousarray(numbers.astype(tensor.datatype.numpy))
        if tensor.datatype.numpy.hasobject:
            arrays[tensor.name] = np.array([str(number).encode() for number in numbers.flat], object).reshape(shape)
    return arrays


def _assert_same(expected: Array, actual: Array) -> None:
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
    else:
        np.testing.assert_array_equal(actual, expected)

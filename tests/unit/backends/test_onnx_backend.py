"""Loading and running ONNX models: files, sharing, threads, errors."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_models
import onnxruntime
import plans
import psutil
import pytest
from onnx import helper

from naiad.backends.base import BackendInstance, ModelFiles
from naiad.backends.onnx import session as sessions
from naiad.backends.onnx.backend import OnnxRuntimeBackend
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.errors import Code, InferenceServerError

X = np.array([[1.0, 2.0]], np.float32)


@pytest.fixture
def scaled(tmp_path: Path) -> ModelFiles:
    return ModelFiles("m", onnx_models.save(onnx_models.scaled(), tmp_path / "model.onnx"))


def _scaled_plan(*, has_scale: bool = False) -> ModelPlan:
    scale = [plans.tensor("scale", "FP32", [1], is_optional=True)] if has_scale else []
    return plans.plan([plans.tensor("x", "FP32", [-1, 2]), *scale], [plans.tensor("y", "FP32", [-1, 2])])


def _load(plan: ModelPlan, files: ModelFiles) -> BackendInstance:
    return OnnxRuntimeBackend.load(plan, plan.instances[0], files)


def test_a_folder_holds_its_model_as_model_onnx(tmp_path: Path):
    onnx_models.save(onnx_models.scaled(), tmp_path / "model.onnx" / "model.onnx")
    instance = _load(_scaled_plan(), ModelFiles("m", tmp_path / "model.onnx"))
    np.testing.assert_array_equal(instance.execute({"x": X}, ["y"])["y"], X * 2)


def test_a_folder_without_a_model_is_an_error_that_names_the_missing_file(tmp_path: Path):
    with pytest.raises(InferenceServerError, match=f"there is no model file '{tmp_path}/model.onnx'"):
        OnnxRuntimeBackend.signature(ModelFiles("m", tmp_path))


def test_an_input_with_a_default_may_be_left_out_or_given(scaled: ModelFiles):
    instance = _load(_scaled_plan(has_scale=True), scaled)
    np.testing.assert_array_equal(instance.execute({"x": X}, ["y"])["y"], X * 2)
    scale = np.array([5.0], np.float32)
    np.testing.assert_array_equal(instance.execute({"x": X, "scale": scale}, ["y"])["y"], X * 5)


def test_instances_of_a_version_on_the_cpu_share_one_session(scaled: ModelFiles, monkeypatch: pytest.MonkeyPatch):
    opened: list[ModelFiles] = []
    open_session = sessions.open_session
    monkeypatch.setattr(sessions, "open_session", lambda files, *more: opened.append(files) or open_session(files, *more))
    plan = _scaled_plan()
    instances = [OnnxRuntimeBackend.load(plan, InstancePlan(f"m_{i}", "CPU", -1, "m"), scaled) for i in range(3)]
    assert [scaled] == opened
    _load(plan, ModelFiles("m", scaled.path))
    assert len(opened) == 2
    np.testing.assert_array_equal(instances[2].execute({"x": X}, ["y"])["y"], X * 2)


def test_instances_that_share_a_session_run_at_the_same_time_without_mixing_results(tmp_path: Path):
    files = ModelFiles("m", onnx_models.save(onnx_models.dense(128), tmp_path / "model.onnx"))
    plan = plans.plan([plans.tensor("x", "FP32", [-1, 128])], [plans.tensor("y", "FP32", [-1, 128])])
    instances = [_load(plan, files) for _ in range(4)]
    inputs = [np.full((4, 128), value + 1, np.float32) for value in range(4)]
    expected = [instances[0].execute({"x": x}, ["y"])["y"] for x in inputs]

    def is_always_right(index: int) -> bool:
        results = [instances[index].execute({"x": inputs[index]}, ["y"])["y"] for _ in range(200)]
        return all(np.array_equal(result, expected[index]) for result in results)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_always_right, range(4)))


def test_a_closed_instance_runs_no_more(scaled: ModelFiles):
    instance = _load(_scaled_plan(), scaled)
    instance.close()
    with pytest.raises(InferenceServerError, match="instance is closed"):
        instance.execute({"x": X}, ["y"])


def test_memory_is_given_back_when_the_last_instance_closes(tmp_path: Path):
    files = ModelFiles("m", onnx_models.save(onnx_models.dense(2048), tmp_path / "model.onnx"))
    plan = plans.plan([plans.tensor("x", "FP32", [-1, 2048])], [plans.tensor("y", "FP32", [-1, 2048])])
    weights_bytes = 2048 * 2048 * 4
    process = psutil.Process()
    for _ in range(2):
        _load(plan, ModelFiles("m", files.path)).close()
    before = process.memory_info().rss
    for _ in range(10):
        shared = ModelFiles("m", files.path)
        instances = [_load(plan, shared) for _ in range(2)]
        del shared
        for instance in instances:
            instance.close()
    assert process.memory_info().rss - before < 5 * weights_bytes


def test_hundreds_of_models_start_no_threads(scaled: ModelFiles):
    before = psutil.Process().num_threads()
    instances = [_load(_scaled_plan(), ModelFiles("m", scaled.path)) for _ in range(200)]
    for instance in instances:
        instance.execute({"x": X}, ["y"])
    assert before == psutil.Process().num_threads()


def test_threads_that_the_config_asks_for_are_started(scaled: ModelFiles):
    before = psutil.Process().num_threads()
    instance = _load(_scaled_plan(), replace(scaled, parameters={"intra_op_thread_count": "3"}))
    assert before + 2 == psutil.Process().num_threads()
    instance.execute({"x": X}, ["y"])


def test_every_parameter_is_taken_by_the_engine(scaled: ModelFiles):
    parameters = {
        "intra_op_thread_count": "2",
        "inter_op_thread_count": "2",
        "execution_mode": "1",
        "enable_mem_arena": "1",
        "enable_mem_pattern": "0",
        "memory.enable_memory_arena_shrinkage": "cpu:0",
        "session.use_device_allocator_for_initializers": "1",
        "session.intra_op.allow_spinning": "1",
    }
    instance = _load(_scaled_plan(), replace(scaled, parameters=parameters))
    np.testing.assert_array_equal(instance.execute({"x": X}, ["y"])["y"], X * 2)


@pytest.mark.parametrize("level", [-1, 0, 1, 2])
def test_every_graph_level_runs(scaled: ModelFiles, level: int):
    plan = replace(_scaled_plan(), config={"optimization": {"graph": {"level": level}}})
    np.testing.assert_array_equal(_load(plan, scaled).execute({"x": X}, ["y"])["y"], X * 2)


def test_with_the_global_pool_all_sessions_compute_on_its_threads(scaled: ModelFiles):
    script = f"""
import numpy, pathlib, plans, psutil
from naiad.backends.base import ModelFiles
from naiad.backends.onnx.backend import OnnxRuntimeBackend
plan = plans.plan([plans.tensor("x", "FP32", [-1, 2])], [plans.tensor("y", "FP32", [-1, 2])])
settings = {{"enable-global-threadpool": "1", "intra_op_thread_count": "4"}}
before = psutil.Process().num_threads()
loaded = []
for _ in range(3):
    files = ModelFiles("m", pathlib.Path({str(scaled.path)!r}), {{}}, settings)
    OnnxRuntimeBackend.signature(files)
    loaded.append(OnnxRuntimeBackend.load(plan, plan.instances[0], files))
for instance in loaded:
    assert instance.execute({{"x": numpy.ones((1, 2), numpy.float32)}}, ["y"])["y"].tolist() == [[2.0, 2.0]]
assert psutil.Process().num_threads() == before + 3, psutil.Process().num_threads() - before
"""
    # In a process of its own: the engine keeps its pool until the process ends.
    folder = Path(plans.__file__).parent
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (np.ones((1, 3), np.float32), "Got: 3 Expected: 2"),
        (np.ones(2, np.float32), "Invalid rank"),
        (np.ones((1, 2), np.float64), "Unexpected input data type"),
    ],
    ids=["size", "rank", "datatype"],
)
def test_what_the_engine_calls_a_wrong_argument_is_the_clients_fault(scaled: ModelFiles, x: np.ndarray, text: str):
    with pytest.raises(InferenceServerError, match=text) as caught:
        _load(_scaled_plan(), scaled).execute({"x": x}, ["y"])
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert "model 'm'" in caught.value.message
    assert "ONNXRuntimeError" not in caught.value.message


def test_a_missing_input_is_the_clients_fault_and_named(scaled: ModelFiles):
    with pytest.raises(InferenceServerError, match=r"Required inputs \(\['x'\]\) are missing") as caught:
        _load(_scaled_plan(), scaled).execute({}, ["y"])
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_failure_inside_the_model_is_internal_and_names_the_model(tmp_path: Path):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = [onnx_models.value("x", "FP32", [None]), onnx_models.value("shape", "INT64", [None])]
    model = onnx_models.model([node], inputs, [onnx_models.value("y", "FP32", None)])
    files = ModelFiles("m", onnx_models.save(model, tmp_path / "model.onnx"))
    plan = plans.plan(
        [plans.tensor("x", "FP32", [-1]), plans.tensor("shape", "INT64", [-1])], [plans.tensor("y", "FP32", [-1, -1])]
    )
    with pytest.raises(InferenceServerError, match=r"model 'm' failed in onnxruntime: .*Reshape") as caught:
        _load(plan, files).execute({"x": np.ones(5, np.float32), "shape": np.array([2, 3])}, ["y"])
    assert caught.value.code is Code.INTERNAL


def test_a_gpu_instance_without_cuda_says_which_package_to_install(scaled: ModelFiles):
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(InferenceServerError, match=r"CUDAExecutionProvider.*install onnxruntime-gpu"):
        OnnxRuntimeBackend.load(_scaled_plan(), InstancePlan("m_0_gpu0", "GPU", 0, "m"), scaled)


@pytest.mark.gpu
def test_a_gpu_instance_computes_the_same_as_the_cpu(scaled: ModelFiles):
    instance = OnnxRuntimeBackend.load(_scaled_plan(), InstancePlan("m_0_gpu0", "GPU", 0, "m"), scaled)
    np.testing.assert_array_equal(instance.execute({"x": X}, ["y"])["y"], X * 2)


def test_a_session_setting_that_the_engine_refuses_is_an_error_that_names_the_model(scaled: ModelFiles):
    files = replace(scaled, parameters={"session." + "k" * 2000: "1"})
    with pytest.raises(InferenceServerError, match="model 'm': can't load") as caught:
        _load(_scaled_plan(), files)
    assert caught.value.code is Code.INVALID_ARGUMENT

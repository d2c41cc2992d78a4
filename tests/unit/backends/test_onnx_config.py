"""What a config and the command line say becomes a session's settings, and wrong values are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import plans
import pytest

from naiad.backends.base import ModelFiles
from naiad.backends.onnx.config import SessionConfig, peek_config, session_config
from naiad.config.plan import InstancePlan
from naiad.errors import Code, InferenceServerError

GPU = InstancePlan("m_0_gpu1", "GPU", 1, "m")


def _config(
    parameters: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    instance: InstancePlan | None = None,
) -> SessionConfig:
    plan = replace(plans.plan([], []), config=config or {})
    return session_config(plan, instance or plan.instances[0], ModelFiles("m", Path("m"), parameters or {}, settings or {}))


def test_a_session_has_no_threads_of_its_own_and_never_spins_by_default():
    made = _config()
    assert (made.intra_op_threads, made.inter_op_threads, made.is_parallel, made.uses_global_pool) == (1, 1, False, False)
    assert made.entries == {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}


def test_memory_and_optimisation_are_on_by_default():
    made = _config()
    assert (made.has_mem_arena, made.has_mem_pattern, made.graph_level, made.run_entries) == (True, True, "all", {})


@pytest.mark.parametrize(
    ("key", "value", "field", "expected"),
    [
        ("intra_op_thread_count", "4", "intra_op_threads", 4),
        ("intra_op_thread_count", "0", "intra_op_threads", 0),
        ("inter_op_thread_count", "3", "inter_op_threads", 3),
        ("execution_mode", "1", "is_parallel", True),
        ("execution_mode", "0", "is_parallel", False),
        ("enable_mem_arena", "0", "has_mem_arena", False),
        ("enable_mem_arena", "true", "has_mem_arena", True),
        ("enable_mem_pattern", "False", "has_mem_pattern", False),
        (
            "memory.enable_memory_arena_shrinkage",
            "cpu:0",
            "run_entries",
            {"memory.enable_memory_arena_shrinkage": "cpu:0"},
        ),
    ],
)
def test_a_parameter_or_a_backend_setting_sets_its_field(key: str, value: str, field: str, expected: object):
    assert expected == getattr(_config(parameters={key: value}), field)
    assert expected == getattr(_config(settings={key: value}), field)


def test_a_models_parameter_wins_over_the_command_line():
    settings = {"intra_op_thread_count": "8", "session.a": "1", "session.b": "1"}
    made = _config(parameters={"intra_op_thread_count": "2", "session.a": "2"}, settings=settings)
    assert (made.intra_op_threads, made.entries["session.a"], made.entries["session.b"]) == (2, "2", "1")


def test_session_entries_are_passed_on_and_may_allow_spinning():
    made = _config(parameters={"session.intra_op.allow_spinning": "1", "other": "x"})
    assert made.entries == {"session.intra_op.allow_spinning": "1", "session.inter_op.allow_spinning": "0"}


def test_parallel_execution_uses_the_cores_unless_a_count_is_given():
    assert _config(parameters={"execution_mode": "1"}).inter_op_threads == 0
    assert _config(parameters={"execution_mode": "1", "inter_op_thread_count": "2"}).inter_op_threads == 2


@pytest.mark.parametrize(("level", "expected"), [(0, "all"), (-1, "basic"), (1, "extended"), (2, "none")])
def test_the_graph_level_is_the_configs(level: int, expected: str):
    assert expected == _config(config={"optimization": {"graph": {"level": level}}}).graph_level


def test_the_global_pool_is_the_operators_and_its_size_too():
    settings = {"enable-global-threadpool": "1", "intra_op_thread_count": "6"}
    made = _config(parameters={"intra_op_thread_count": "2", "enable-global-threadpool": "0"}, settings=settings)
    assert (made.uses_global_pool, made.intra_op_threads) == (True, 6)
    assert not _config(parameters={"enable-global-threadpool": "1"}).uses_global_pool


def test_the_global_pool_has_a_thread_for_each_core_by_default():
    assert _config(settings={"enable-global-threadpool": "true"}).intra_op_threads == 0


def test_a_signature_is_read_without_preparing_to_run():
    made = peek_config(ModelFiles("m", Path("m")))
    assert (made.graph_level, made.has_mem_arena, made.has_mem_pattern) == ("none", False, False)


def test_a_signature_is_read_on_the_pool_that_the_process_has():
    assert peek_config(ModelFiles("m", Path("m"), {}, {"enable-global-threadpool": "1"})).uses_global_pool


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("intra_op_thread_count", "-1", "a whole number from 0 to 1024"),
        ("intra_op_thread_count", "two", "a whole number from 0 to 1024"),
        ("intra_op_thread_count", "1025", "a whole number from 0 to 1024"),
        ("intra_op_thread_count", "²", "a whole number from 0 to 1024"),
        ("inter_op_thread_count", "1.5", "a whole number from 0 to 1024"),
        ("execution_mode", "2", "one of 0, 1"),
        ("enable_mem_arena", "yes", "one of 1, 0, true, false"),
        ("enable_mem_pattern", "", "one of 1, 0, true, false"),
        ("memory.enable_memory_arena_shrinkage", "gpu:0", "arenas that instance 'm_0' has: cpu:0"),
        ("memory.enable_memory_arena_shrinkage", "cpu:0;", "arenas that instance 'm_0' has: cpu:0"),
    ],
)
def test_a_wrong_value_names_the_setting_the_value_and_what_is_allowed(key: str, value: str, allowed: str):
    for where, error in (("parameter", {"parameters": {key: value}}), ("--backend-config setting", {"settings": {key: value}})):
        with pytest.raises(InferenceServerError) as caught:
            _config(**error)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert f"model 'm': {where} '{key}' is '{value}', must be {allowed}" in caught.value.message


def test_a_wrong_pool_setting_is_named():
    with pytest.raises(InferenceServerError, match="setting 'enable-global-threadpool' is 'on'"):
        _config(settings={"enable-global-threadpool": "on"})


def test_a_wrong_graph_level_is_named():
    with pytest.raises(InferenceServerError, match=r"'optimization\.graph\.level' is 3, must be 0 \(all\)"):
        _config(config={"optimization": {"graph": {"level": 3}}})


def test_an_arena_that_is_off_cannot_be_shrunk():
    with pytest.raises(InferenceServerError, match="has: none"):
        _config(parameters={"enable_mem_arena": "0", "memory.enable_memory_arena_shrinkage": "cpu:0"})


def test_a_gpu_instance_may_shrink_the_arena_of_its_own_device():
    key = "memory.enable_memory_arena_shrinkage"
    assert {key: "cpu:0;gpu:1"} == _config(parameters={key: "cpu:0;gpu:1"}, instance=GPU).run_entries
    with pytest.raises(InferenceServerError, match="must be arenas that instance 'm_0_gpu1' has: cpu:0;gpu:1"):
        _config(parameters={key: "gpu:0"}, instance=GPU)

"""The settings of workers come from flags and from Triton's settings of its Python backend."""

import logging

import pytest

from naiad.config.options import parse_options
from naiad.errors import Code, InferenceServerError
from naiad.execution.process.life.settings import WorkerSettings, settings_of

MIB = 1 << 20


def settings(*arguments: str) -> WorkerSettings:
    return settings_of(parse_options(["--model-repository=/m", *arguments]))


def test_without_flags_they_are_the_defaults():
    assert settings() == WorkerSettings()


def test_each_flag_is_one_of_them():
    got = settings(
        "--worker-start-timeout-secs=5",
        "--worker-load-timeout-secs=600",
        "--worker-stop-timeout-secs=0",
        "--worker-restart-delay-secs=0.5",
        "--worker-restart-max-delay-secs=8",
        "--worker-arena-limit-mb=100",
    )
    assert (got.start_timeout_s, got.load_timeout_s, got.stop_timeout_s) == (5, 600, 0)
    assert (got.restart_delay_s, got.restart_max_delay_s) == (0.5, 8)
    assert got.arena.limit_bytes == 100 * MIB


def test_tritons_settings_of_the_python_backend_go_before_the_flags():
    got = settings(
        "--worker-start-timeout-secs=5",
        "--backend-config=python,stub-timeout-seconds=60",
        "--backend-config=python,shm-default-byte-size=2097152",
        "--backend-config=python,shm-growth-byte-size=4194304",
    )
    assert (got.start_timeout_s, got.arena.first_bytes, got.arena.growth_bytes) == (60, 2 * MIB, 4 * MIB)


def test_settings_of_other_backends_change_nothing():
    assert settings("--backend-config=stub-timeout-seconds=9", "--backend-config=other,shm-default-byte-size=x") == settings()


@pytest.mark.parametrize("key", ["shm-default-byte-size", "shm-growth-byte-size", "stub-timeout-seconds"])
@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1e6", "x", "²", "9" * 40])
def test_a_wrong_value_is_refused_by_its_key(key, text):
    with pytest.raises(InferenceServerError) as caught:
        settings(f"--backend-config=python,{key}={text}")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == f"--backend-config=python,{key} must be a whole number of at least 1; it is '{text}'"


def test_a_first_segment_larger_than_the_limit_is_refused():
    with pytest.raises(InferenceServerError) as caught:
        settings("--backend-config=python,shm-default-byte-size=2097152", "--worker-arena-limit-mb=1")
    assert caught.value.message == (
        "--backend-config=python,shm-default-byte-size=2097152 is more than --worker-arena-limit-mb=1 allows"
    )


@pytest.mark.parametrize(
    ("key", "level", "text"),
    [
        ("shm-region-prefix-name", logging.INFO, "changes nothing: shared memory has no names here"),
        ("thread-pool-size", logging.INFO, "changes nothing: no thread waits for a worker here"),
        ("shm-defualt-byte-size", logging.WARNING, "isn't known and changes nothing"),
    ],
)
def test_what_changes_nothing_says_so_in_one_line(caplog, key, level, text):
    with caplog.at_level(logging.INFO, "naiad"):
        assert settings(f"--backend-config=python,{key}=7") == settings()
    assert [(record.levelno, record.message) for record in caplog.records] == [(level, f"--backend-config=python,{key} {text}")]

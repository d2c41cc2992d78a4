"""The repository that the tests of the model API ask: one model an area, and those that the models call.

The same files for Naiad and for the C++ Triton.
"""

from __future__ import annotations

from pathlib import Path

from python_models import IO, Config, source, write_echo, write_probes, write_python_model

NAME = (IO("NAME", "BYTES", "1"),)
SAID = (IO("SAID", "BYTES", "1"),)
ANY_ROW = (IO("X", dims="1, -1"),)
ONE_NUMBER = (IO("Y", dims="1"),)
TIME_LIMITED = """dynamic_batching { max_queue_delay_microseconds: 20000000
    default_queue_policy { default_timeout_microseconds: 10000000 allow_timeout_override: true } }"""

AREAS = ("tensors", "messages", "functions", "control", "metrics", "calls", "async_calls")


def write_api_models(repository: Path) -> Path:
    """Write a model for each of AREAS, `senders` and `decoupled`, which send by senders, and the models that are called."""
    for area in ("tensors", "messages", "functions", "control", "metrics"):
        write_probes(repository, area)
    write_probes(repository, "calls", Config(NAME, SAID, 0, instance_count=2))
    for name, is_decoupled in (("senders", False), ("decoupled", True)):
        write_python_model(repository, name, source("senders"), Config(NAME, SAID, 0, is_decoupled=is_decoupled))
    write_python_model(repository, "async_calls", source("async_calls"), Config(NAME, SAID, 0))
    write_echo(repository)
    write_echo(repository, "echo_bytes", Config((IO("X", "BYTES"),), (IO("Y", "BYTES"),)))
    write_echo(repository, "slow_batcher", Config(more=TIME_LIMITED))
    write_python_model(repository, "failing", source("failing"))
    write_python_model(repository, "telling", source("telling"), Config(ANY_ROW, SAID, 0))
    for name in ("repeat", "patient"):
        write_python_model(repository, name, source(name), Config(ANY_ROW, ONE_NUMBER, 0, is_decoupled=True))
    return repository

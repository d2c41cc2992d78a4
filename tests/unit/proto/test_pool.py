"""The private pool: lazy, apart from protobuf's default pool, usable with either implementation, safe on threads."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import descriptor_pool

from naiad.proto import message_class


def run_python(code, **environment):
    """Run code in a process of its own: the pool and the implementation of protobuf are chosen once a process."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_same_name_gives_the_same_class():
    assert message_class("inference.ModelConfig") is message_class("inference.ModelConfig")


def test_an_unknown_name_is_a_key_error():
    with pytest.raises(KeyError, match=r"inference\.Nope"):
        message_class("inference.Nope")


def test_the_default_pool_never_hears_of_our_messages():
    code = (
        "from naiad.proto import message_class\n"
        "message_class('inference.ModelConfig'); message_class('grpc.health.v1.HealthCheckRequest')\n"
        "from google.protobuf import descriptor_pool\n"
        "try: descriptor_pool.Default().FindMessageTypeByName('inference.ModelConfig')\n"
        "except KeyError: print('apart')"
    )
    run = run_python(code)
    assert run.stdout == "apart\n", run.stderr


def test_our_pool_is_not_the_default_one():
    assert message_class("inference.ModelConfig").DESCRIPTOR.file.pool is not descriptor_pool.Default()


def test_importing_the_package_reads_no_descriptor_set():
    code = (
        "import sys, pathlib\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: seen.append(str(args[0])) if event == 'open' else None)\n"
        "import naiad.proto\n"
        "before = [name for name in seen if name.endswith('naiad.binpb')]\n"
        "naiad.proto.message_class('inference.ModelConfig')\n"
        "after = [name for name in seen if name.endswith('naiad.binpb')]\n"
        "print(len(before), len(after))"
    )
    run = run_python(code)
    assert run.stdout == "0 1\n", run.stderr


@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize("first", ["naiad", "tritonclient"])
def test_it_lives_beside_tritonclients_copy_in_either_order(implementation, first):
    pytest.importorskip("tritonclient.grpc")
    imports = {
        "naiad": "from naiad.proto import message_class; ours = message_class('inference.ModelConfig')(name='m')",
        "tritonclient": "from tritonclient.grpc import model_config_pb2; theirs = model_config_pb2.ModelConfig(name='m')",
    }
    order = [imports.pop(first), *imports.values()]
    # Third parties' own deprecation warnings aren't ours to fail on.
    code = "\n".join(
        [
            "import warnings; warnings.simplefilter('ignore')",
            *order,
            "print(ours.SerializeToString() == theirs.SerializeToString())",
        ]
    )
    run = run_python(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation)
    assert run.stdout == "True\n", run.stderr


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_threads_that_start_together_get_one_class(implementation):
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from threading import Barrier\n"
        "from naiad.proto import message_class\n"
        "barrier = Barrier(8)\n"
        "def get(_):\n"
        "    barrier.wait()\n"
        "    return message_class('inference.ModelInferRequest')\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    print(len(set(threads.map(get, range(8)))))"
    )
    run = run_python(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation)
    assert run.stdout == "1\n", run.stderr


def test_messages_made_on_different_threads_mix():
    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(lambda name: message_class("inference.ModelConfig")(name=name), ["a", "b"])
    one.MergeFrom(two)
    assert one.name == "b"

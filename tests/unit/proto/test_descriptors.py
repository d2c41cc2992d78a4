"""The descriptor set: up to date with proto/, and equal, field by field, to what clients carry."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from naiad.proto import descriptor_set

ROOT = Path(__file__).parents[3]


def our_files():
    """Our files by the package they declare things in, as plain descriptor messages."""
    return list(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file)


def messages_of(file, prefix=""):
    """Every message of a file, nested ones too, by its full name."""
    found = {}
    for message in file.message_type if hasattr(file, "message_type") else file.nested_type:
        name = f"{prefix}.{message.name}"
        found[name] = message
        found.update(messages_of(message, name))
    return found


def enums_of(file):
    """Every enum of a file, nested ones too: full name to {value name: number}."""
    holders = [(f".{file.package}", file.enum_type)]
    holders += [(name, message.enum_type) for name, message in messages_of(file, f".{file.package}").items()]
    return {
        f"{prefix}.{enum.name}": {value.name: value.number for value in enum.value}
        for prefix, enums in holders
        for enum in enums
    }


def fields_of(message):
    """What makes a message's wire form and its JSON and text forms."""
    oneofs = [oneof.name for oneof in message.oneof_decl]
    return {
        field.name: (
            field.number,
            field.type,
            field.label,
            field.type_name,
            oneofs[field.oneof_index] if oneofs_in(field) else None,
        )
        for field in message.field
    }


def oneofs_in(field):
    return field.HasField("oneof_index")


def their_files():
    """The files of tritonclient's generated modules: the same messages as NVIDIA publishes them."""
    pytest.importorskip("tritonclient.grpc")
    from tritonclient.grpc import model_config_pb2, service_pb2

    files = []
    for module in (model_config_pb2, service_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def merged(collect, files):
    result = {}
    for file in files:
        result.update(collect(file))
    return result


def inference_files():
    return [file for file in our_files() if file.package == "inference"]


def test_the_committed_descriptor_set_is_what_proto_compiles_to():
    pytest.importorskip("grpc_tools")
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "compile_proto.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, "up to date" in run.stdout) == (0, True), run.stdout + run.stderr


def all_messages(file):
    return {name: fields_of(message) for name, message in messages_of(file, f".{file.package}").items()}


def test_every_message_has_the_clients_fields_numbers_types_and_oneofs():
    theirs, ours = merged(all_messages, their_files()), merged(all_messages, inference_files())
    assert theirs == ours


def test_every_enum_has_the_clients_values():
    theirs, ours = merged(enums_of, their_files()), merged(enums_of, inference_files())
    assert theirs == ours


def rpcs_of(file):
    return {
        method.name: (method.input_type, method.output_type, method.client_streaming, method.server_streaming)
        for service in file.service
        for method in service.method
    }


def test_the_service_has_the_clients_rpcs():
    theirs, ours = merged(rpcs_of, their_files()), merged(rpcs_of, inference_files())
    assert theirs == ours


def test_health_has_the_numbers_that_grpc_publishes():
    (health,) = [file for file in our_files() if file.package == "grpc.health.v1"]
    assert rpcs_of(health) == {
        "Check": (".grpc.health.v1.HealthCheckRequest", ".grpc.health.v1.HealthCheckResponse", False, False),
        "Watch": (".grpc.health.v1.HealthCheckRequest", ".grpc.health.v1.HealthCheckResponse", False, True),
    }
    assert enums_of(health) == {
        ".grpc.health.v1.HealthCheckResponse.ServingStatus": {
            "UNKNOWN": 0,
            "SERVING": 1,
            "NOT_SERVING": 2,
            "SERVICE_UNKNOWN": 3,
        }
    }
    numbers = {name: [field.number for field in message.field] for name, message in messages_of(health, "").items()}
    assert numbers == {".HealthCheckRequest": [1], ".HealthCheckResponse": [1]}


@pytest.mark.parametrize("package", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def test_reflection_has_the_numbers_that_grpc_publishes(package):
    (reflection,) = [file for file in our_files() if file.package == package]
    assert rpcs_of(reflection) == {
        "ServerReflectionInfo": (f".{package}.ServerReflectionRequest", f".{package}.ServerReflectionResponse", True, True)
    }
    messages = messages_of(reflection, "")
    assert {name: {field.name: field.number for field in message.field} for name, message in messages.items()} == {
        ".ServerReflectionRequest": {
            "host": 1,
            "file_by_filename": 3,
            "file_containing_symbol": 4,
            "file_containing_extension": 5,
            "all_extension_numbers_of_type": 6,
            "list_services": 7,
        },
        ".ExtensionRequest": {"containing_type": 1, "extension_number": 2},
        ".ServerReflectionResponse": {
            "valid_host": 1,
            "original_request": 2,
            "file_descriptor_response": 4,
            "all_extension_numbers_response": 5,
            "list_services_response": 6,
            "error_response": 7,
        },
        ".FileDescriptorResponse": {"file_descriptor_proto": 1},
        ".ExtensionNumberResponse": {"base_type_name": 1, "extension_number": 2},
        ".ListServiceResponse": {"service": 1},
        ".ServiceResponse": {"name": 1},
        ".ErrorResponse": {"error_code": 1, "error_message": 2},
    }


def test_each_file_of_the_set_comes_after_those_it_imports():
    seen = set()
    for file in our_files():
        assert set(file.dependency) <= seen
        seen.add(file.name)


def test_the_compile_script_is_importable_without_grpc_tools():
    spec = importlib.util.spec_from_file_location("compile_proto", ROOT / "scripts" / "compile_proto.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert ROOT / "src" / "naiad" / "proto" / "naiad.binpb" == module.TARGET

"""The RPCs of one request and one response, from message bytes to message bytes: each one's answer, errors and broken calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_call import FakeCall
from fake_loop import FakeLoop
from fake_service import FakeService
from google.protobuf import descriptor_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

from naiad.errors import Code, InferenceServerError, unavailable
from naiad.frontends.grpc.call import RpcMethod
from naiad.frontends.grpc.rpc.table import health_methods, reflection_methods, unary_methods
from naiad.proto import descriptor_set, message_class
from naiad.request.service import CudaRegion, SystemRegion

SERVICES = {
    f"{file.package}.{service.name}": service
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file
    for service in file.service
}
INFERENCE = SERVICES["inference.GRPCInferenceService"]
UNARY = [method.name for method in INFERENCE.method if not (method.server_streaming or method.name == "ModelInfer")]
REGION = {"name": "r", "key": "/k", "offset": "8", "byte_size": "64"}


def methods(service: FakeService) -> dict[str, RpcMethod]:
    return {method.path.decode().rpartition("/")[2]: method for method in unary_methods(service)}  # type: ignore[arg-type]


def answered(service: FakeService, name: str, message: bytes) -> FakeCall:
    """Put one message to an RPC and return its transport when it has ended."""

    async def run() -> FakeCall:
        call = FakeCall()
        rpc = methods(service)[name].start(call)
        rpc.on_message(message)
        rpc.on_half_close()
        await call.has_ended.wait()
        return call

    return asyncio.run(run())


def request_class(name: str) -> Any:
    return message_class(f"inference.{name}Request")


def ask(service: FakeService, name: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer to a request, both in their JSON form. Raises the error that the client gets."""
    call = answered(service, name, ParseDict(request or {}, request_class(name)()).SerializeToString())
    if call.end is not None:
        raise call.end
    (message,) = call.sent
    response = message_class(f"inference.{name}Response").FromString(message)
    return MessageToDict(response, preserving_proto_field_name=True)


@pytest.fixture
def service() -> FakeService:
    return FakeService()


def test_every_rpc_that_is_declared_is_answered_and_no_other(service) -> None:
    served = [*unary_methods(service), *health_methods(service, FakeLoop().call_soon)]
    served += reflection_methods(FakeLoop().call_soon)
    declared = {f"/{name}/{method.name}" for name, declared in SERVICES.items() for method in declared.method}
    elsewhere = {f"/inference.GRPCInferenceService/{name}" for name in ("ModelInfer", "ModelStreamInfer")}
    assert declared - elsewhere == {method.path.decode() for method in served}


@pytest.mark.parametrize(
    ("category", "names"),
    [
        ("health", {"ServerLive", "ServerReady", "ModelReady"}),
        ("metadata", {"ServerMetadata", "ModelMetadata"}),
        ("model-config", {"ModelConfig"}),
        ("statistics", {"ModelStatistics"}),
        ("model-repository", {"RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"}),
        ("logging", {"LogSettings"}),
        ("trace", {"TraceSetting"}),
    ],
)
def test_an_rpc_is_restricted_with_its_group(service, category, names) -> None:
    assert {name for name, method in methods(service).items() if method.category == category} == names


def test_the_rpcs_of_shared_memory_are_restricted_together(service) -> None:
    shared = {name for name, method in methods(service).items() if method.category == "shared-memory"}
    assert shared == {
        f"{kind}SharedMemory{what}" for kind in ("System", "Cuda") for what in ("Status", "Register", "Unregister")
    }


@pytest.mark.parametrize("is_it", [True, False])
def test_live_and_ready_are_the_services(service, is_it) -> None:
    service.live = service.ready = service.model_ready = is_it
    assert ask(service, "ServerLive").get("live", False) is is_it
    assert ask(service, "ServerReady").get("ready", False) is is_it
    assert ask(service, "ModelReady", {"name": "echo"}).get("ready", False) is is_it


def test_a_model_that_cant_serve_now_isnt_ready_and_other_errors_are_told(service) -> None:
    service.fault = unavailable("still loading")
    assert ask(service, "ModelReady", {"name": "echo"}) == {}
    service.fault = None
    with pytest.raises(InferenceServerError, match="unknown model: 'none'") as raised:
        ask(service, "ModelReady", {"name": "none"})
    assert raised.value.code is Code.NOT_FOUND


def test_metadata_of_server_and_model(service) -> None:
    assert ask(service, "ServerMetadata") == {"name": "naiad", "version": "1.2.3", "extensions": ["classification", "logging"]}
    assert ask(service, "ModelMetadata", {"name": "echo", "version": "3"}) == {
        "name": "echo",
        "versions": ["3"],
        "platform": "python",
        "inputs": [
            {"name": "X", "datatype": "FP32", "shape": ["-1", "16"]},
            {"name": "S", "datatype": "BYTES", "shape": ["-1", "1"]},
        ],
        "outputs": [{"name": "Y", "datatype": "FP32", "shape": ["-1", "16"]}],
    }
    assert service.asked == [("echo", "3")]


def test_a_models_config_and_statistics(service) -> None:
    config = ask(service, "ModelConfig", {"name": "echo"})["config"]
    assert (config["name"], config["max_batch_size"]) == ("echo", 8)
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == str(2**63)
    assert ask(service, "ModelStatistics", {"name": "echo", "version": "2"}) == {
        "model_stats": [{"name": "echo", "version": "2"}]
    }
    assert service.asked == [("echo", ""), ("echo", "2")]


@pytest.mark.parametrize("name", ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"])
@pytest.mark.parametrize("version", ["x", "-1", "1.5", " 1"])
def test_a_version_that_is_no_number_is_refused(service, name, version) -> None:
    with pytest.raises(InferenceServerError, match="failed to get model version") as raised:
        ask(service, name, {"name": "echo", "version": version})
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert service.asked == []


@pytest.mark.parametrize("ready", [True, False])
def test_the_index_has_states_and_reasons(service, ready) -> None:
    assert ask(service, "RepositoryIndex", {"ready": ready}) == {
        "models": [
            {"name": "echo", "version": "1", "state": "READY"},
            {"name": "broken", "state": "UNAVAILABLE", "reason": "no file"},
        ]
    }
    assert service.index_filters == [ready]


def test_load_and_unload_hand_their_parameters_on(service) -> None:
    parameters = {"config": {"string_param": "{}"}, "file:1/m": {"bytes_param": "AAE="}}
    assert ask(service, "RepositoryModelLoad", {"model_name": "a", "parameters": parameters}) == {}
    assert service.loaded == [("a", {"config": "{}", "file:1/m": b"\x00\x01"})]
    assert ask(service, "RepositoryModelUnload", {"model_name": "a"}) == {}
    assert (
        ask(
            service,
            "RepositoryModelUnload",
            {"model_name": "a", "parameters": {"unload_dependents": {"bool_param": True}}},
        )
        == {}
    )
    assert service.unloaded == [("a", False), ("a", True)]


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        (
            "RepositoryModelLoad",
            {"config": {"bool_param": True}},
            "'config' has invalid type bool_param, it must be string_param",
        ),
        ("RepositoryModelLoad", {"file:1/m": {"string_param": ""}}, "'file:1/m' has invalid type string_param"),
        ("RepositoryModelLoad", {"config": {}}, "'config' has invalid type none"),
        ("RepositoryModelLoad", {"other": {"bool_param": True}}, "unrecognized load parameter 'other', allowed are 'config'"),
        (
            "RepositoryModelUnload",
            {"unload_dependents": {"int64_param": 1}},
            "'unload_dependents' has invalid type int64_param",
        ),
    ],
)
def test_parameters_of_a_wrong_kind_reach_no_model(service, name, parameters, text) -> None:
    with pytest.raises(InferenceServerError, match=text) as raised:
        ask(service, name, {"model_name": "a", "parameters": parameters})
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert (service.loaded, service.unloaded) == ([], [])


def test_log_settings_are_changed_and_told(service) -> None:
    assert ask(service, "LogSettings")["settings"]["log_info"] == {"bool_param": True}
    changed = ask(service, "LogSettings", {"settings": {"log_verbose_level": {"uint32_param": 3}}})["settings"]
    assert changed["log_verbose_level"] == {"uint32_param": 3}
    with pytest.raises(InferenceServerError, match="unknown log setting 'nope', allowed are log_file") as raised:
        ask(service, "LogSettings", {"settings": {"nope": {"bool_param": True}}})
    assert raised.value.code is Code.INVALID_ARGUMENT


def test_trace_settings_are_refused(service) -> None:
    with pytest.raises(InferenceServerError, match="tracing isn't built yet") as raised:
        ask(service, "TraceSetting")
    assert raised.value.code is Code.UNIMPLEMENTED


def test_regions_of_system_shared_memory(service) -> None:
    assert ask(service, "SystemSharedMemoryRegister", REGION) == {}
    assert service.regions == {"r": SystemRegion("r", "/k", 8, 64)}
    assert ask(service, "SystemSharedMemoryStatus") == {"regions": {"r": REGION}}
    assert ask(service, "SystemSharedMemoryUnregister", {"name": "r"}) == {}
    assert ask(service, "SystemSharedMemoryStatus") == {}


def test_regions_of_gpu_memory(service, monkeypatch) -> None:
    request = {"name": "g", "raw_handle": "aGFuZGxl", "device_id": "1", "byte_size": "64"}
    assert ask(service, "CudaSharedMemoryRegister", request) == {}
    assert service.cuda_handles == [("g", b"handle", 1, 64)]
    assert ask(service, "CudaSharedMemoryUnregister", {"name": "g"}) == {}
    assert ask(service, "CudaSharedMemoryStatus") == {}
    monkeypatch.setattr(service, "cuda_regions", lambda name: [CudaRegion("g", 1, 64)])
    assert ask(service, "CudaSharedMemoryStatus", {"name": "g"}) == {
        "regions": {"g": {"name": "g", "device_id": "1", "byte_size": "64"}}
    }


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"ServerLive", "ServerReady", "ModelReady", "TraceSetting"}))
def test_the_services_error_is_the_calls_end(service, name) -> None:
    service.fault = unavailable("not today")
    with pytest.raises(InferenceServerError, match="not today") as raised:
        ask(service, name)
    assert raised.value.code is Code.UNAVAILABLE


def test_a_fault_in_a_task_is_logged_and_not_shown(service, caplog) -> None:
    service.fault = ZeroDivisionError("secret")
    with pytest.raises(InferenceServerError, match="internal error, see the server's log") as raised:
        ask(service, "RepositoryModelLoad")
    assert raised.value.code is Code.INTERNAL
    assert "ZeroDivisionError: secret" in caplog.text


@pytest.mark.parametrize("name", UNARY)
def test_a_message_that_is_no_request_is_refused_by_name(service, name) -> None:
    rpc = methods(service)[name].start(FakeCall())
    with pytest.raises(InferenceServerError, match=rf"the message is no inference\.{name}Request") as raised:
        rpc.on_message(b"\x0a\xff\xff")
    assert raised.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"TraceSetting"}))
def test_no_message_and_a_second_one_are_refused(service, name) -> None:
    silent = FakeCall()
    with pytest.raises(InferenceServerError, match=f"{name} takes one request message, none came") as raised:
        methods(service)[name].start(silent).on_half_close()
    assert (raised.value.code, silent.sent) == (Code.INTERNAL, [])

    service._find = lambda model, version: None  # type: ignore[method-assign]

    async def twice() -> None:
        call = FakeCall()
        rpc = methods(service)[name].start(call)
        rpc.on_message(b"")
        with pytest.raises(InferenceServerError, match=f"{name} takes one request message, a second one came") as raised:
            rpc.on_message(b"")
        assert raised.value.code is Code.INTERNAL
        call.finish(raised.value)
        rpc.on_cancel(raised.value)

    asyncio.run(twice())


def test_a_call_that_is_given_up_ends_its_task(service) -> None:
    async def run() -> FakeCall:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def load(name: str, parameters: Any) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        service.load_model = load  # type: ignore[method-assign]
        call = FakeCall()
        rpc = methods(service)["RepositoryModelLoad"].start(call)
        rpc.on_message(b"")
        await begun.wait()
        call.finish(unavailable("the client is gone"))
        rpc.on_cancel(None)
        await ended.wait()
        return call

    assert asyncio.run(run()).sent == []


def test_a_call_that_is_given_up_at_once_begins_nothing_and_leaves_nothing_behind(service) -> None:
    async def run() -> None:
        call = FakeCall()
        rpc = methods(service)["RepositoryModelLoad"].start(call)
        rpc.on_message(b"")
        rpc.on_cancel(None)
        await call.has_ended.wait()

    asyncio.run(run())
    assert service.loaded == []


def test_an_answer_that_the_server_cancels_ends_the_call(service) -> None:
    async def load(name: str, parameters: Any) -> None:
        raise asyncio.CancelledError

    service.load_model = load  # type: ignore[method-assign]
    with pytest.raises(InferenceServerError, match="RepositoryModelLoad was cancelled by the server") as raised:
        ask(service, "RepositoryModelLoad")
    assert raised.value.code is Code.CANCELLED

"""A client that sends much doesn't keep others waiting, whatever they speak: told by the order in which a model runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import grpc
import pytest
import raw_http
from asking import Asker, grpc_request
from scripted_models import ENVIRONMENT, ScriptedModel
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from waiting import wait_until

FLOOD = 200
FEW = 5
GOLD, FREE = "gold-key-0123456789", "free-key-0123456789"


def models(repository) -> list[ScriptedModel]:
    return [ScriptedModel(repository, "batching", "dynamic_batching { }", 4), ScriptedModel(repository, "plain", "", 1)]


@pytest.fixture(scope="module")
def by_header(tmp_path_factory, serve_for_module) -> dict[str, Asker]:
    repository = tmp_path_factory.mktemp("models")
    made = models(repository)
    server = serve_for_module(
        repository, "--fairness-key=header:X-Tenant", "--fairness-weight=heavy=3", environment=ENVIRONMENT
    )
    return {model.name: Asker(server, model) for model in made}


class Flood:
    """One client's requests, queued behind one that runs until `served`; values from 1000 on are those of others."""

    def __init__(self, asker: Asker, client: str) -> None:
        self.asker = asker
        self.before = len(asker.model.executions())
        asker.model.hold(0)
        # The protocol of HTTP has no streams: a connection for each would be 200, gRPC has them all on one.
        self._channel = grpc.insecure_channel(asker.server.grpc)
        stub = GRPCInferenceServiceStub(self._channel)
        name = asker.model.name
        self._occupied = stub.ModelInfer.future(grpc_request(name, 0), metadata=[("x-tenant", client)], timeout=60)
        wait_until(lambda: len(asker.model.executions()) > self.before)
        self._answers = [
            stub.ModelInfer.future(grpc_request(name, value), metadata=[("x-tenant", client)], timeout=60)
            for value in range(1, FLOOD + 1)
        ]
        wait_until(lambda: asker.pending() == FLOOD)

    def served(self) -> list[float]:
        """Let all run, and return the values in the order in which they did."""
        self.asker.model.release()
        for answer in [self._occupied, *self._answers]:
            answer.result()
        self._channel.close()
        self.asker.wait_idle()
        return [value for values in self.asker.model.executions()[self.before :] for value in values]


@pytest.fixture
def flood(by_header) -> Iterator[Callable[..., Flood]]:
    yield lambda model, client="flood": Flood(by_header[model], client)
    for asker in by_header.values():
        asker.model.release()


def with_header(message: bytes, line: str) -> bytes:
    head, end, body = message.partition(b"\r\n\r\n")
    return head + b"\r\n" + line.encode() + end + body


def places(served: list[float]) -> list[int]:
    return [place for place, value in enumerate(served) if value >= 1000]


@pytest.mark.parametrize("model", ["batching", "plain"])
def test_a_few_requests_over_http_are_served_in_the_next_rounds(model, flood, connect):
    flooded = flood(model)
    few = [
        connect(flooded.asker.server).send(with_header(raw_http.infer(model, [value], [1, 1]), "X-Tenant: small"))
        for value in range(1000, 1000 + FEW)
    ]
    wait_until(lambda: flooded.asker.pending() == FLOOD + FEW)
    served = flooded.served()
    assert [connection.response()[0] for connection in few] == [200] * FEW
    assert len(served) == 1 + FLOOD + FEW
    assert places(served)[-1] <= 1 + 2 * FEW + 4
    assert [value for value in served if value < 1000] == list(range(FLOOD + 1))


def test_who_has_no_header_is_a_client_too(flood, connect):
    flooded = flood("plain")
    few = [connect(flooded.asker.server).send(raw_http.infer("plain", [value], [1, 1])) for value in range(1000, 1000 + FEW)]
    wait_until(lambda: flooded.asker.pending() == FLOOD + FEW)
    served = flooded.served()
    assert [connection.response()[0] for connection in few] == [200] * FEW
    assert places(served)[-1] <= 1 + 2 * FEW + 1


def test_streams_of_grpc_have_their_share(flood):
    flooded = flood("plain")
    with grpc.insecure_channel(flooded.asker.server.grpc) as channel:
        stream = GRPCInferenceServiceStub(channel).ModelStreamInfer(
            iter([grpc_request("plain", value) for value in range(1000, 1000 + FEW)]),
            metadata=[("x-tenant", "small")],
            timeout=60,
        )
        wait_until(lambda: flooded.asker.pending() == FLOOD + FEW)
        served = flooded.served()
        assert [answer.error_message for answer in stream] == [""] * FEW
    assert places(served)[-1] <= 1 + 2 * FEW + 1


def test_generate_has_its_share(flood, connect):
    flooded = flood("plain")
    body = json.dumps({"X": 1000, "MS": 0}).encode()
    asked = connect(flooded.asker.server).send(raw_http.post("/v2/models/plain/generate", body, "X-Tenant: small"))
    wait_until(lambda: flooded.asker.pending() == FLOOD + 1)
    served = flooded.served()
    assert asked.response()[0] == 200
    assert places(served)[-1] <= 3


def test_a_weight_of_3_is_three_items_for_one(flood, connect):
    flooded = flood("plain")
    heavy = [
        connect(flooded.asker.server).send(with_header(raw_http.infer("plain", [value], [1, 1]), "x-tenant: heavy"))
        for value in range(1000, 1030)
    ]
    wait_until(lambda: flooded.asker.pending() == FLOOD + 30)
    served = flooded.served()
    assert {connection.response()[0] for connection in heavy} == {200}
    assert 28 <= sum(value >= 1000 for value in served[1:41]) <= 30


def test_clients_are_told_apart_by_their_api_keys(tmp_path, serve, connect):
    made = models(tmp_path / "models")[1]
    keys = tmp_path / "keys"
    keys.write_text(f"gold {GOLD}\n{FREE}\n")
    keys.chmod(0o600)
    server = serve(
        tmp_path / "models",
        "--fairness-key=api-key",
        f"--api-key-file={keys}",
        "--fairness-weight=gold=2",
        environment=ENVIRONMENT,
    )
    asker = Asker(server, made)
    made.hold(0)

    def ask(value: int, key: str) -> raw_http.Connection:
        return connect(server).send(with_header(raw_http.infer("plain", [value], [1, 1]), f"Authorization: Bearer {key}"))

    asked = [ask(0, FREE)]
    wait_until(lambda: made.ran(0))
    asked += [ask(value, FREE) for value in range(1, 21)]
    wait_until(lambda: asker.pending() == 20)
    asked += [ask(value, GOLD) for value in range(1000, 1010)]
    wait_until(lambda: asker.pending() == 30)
    made.release()
    assert {connection.response()[0] for connection in asked} == {200}
    served = [value for values in made.executions() for value in values]
    assert 9 <= sum(value >= 1000 for value in served[1:16]) <= 10

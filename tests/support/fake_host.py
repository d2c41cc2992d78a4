"""A host of the model API that keeps what it is told, for tests without a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from naiad.worker.api.request import InferenceRequest
from naiad.worker.api.response import InferenceResponse


class FakeCall:
    def __init__(self, answers: list[InferenceResponse]) -> None:
        self.answers = answers
        self.is_cancelled = False

    def responses(self) -> Iterator[InferenceResponse]:
        yield from self.answers

    async def responses_async(self) -> AsyncIterator[InferenceResponse]:
        for answer in self.answers:
            yield answer

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeHost:
    """`sent` are (request id, response, is final), `answers` what the next calls and questions get."""

    def __init__(self) -> None:
        self.is_decoupled = False
        self.version_directory = "/models/fake/1"
        self.sent: list[tuple[int, InferenceResponse | None, bool]] = []
        self.dropped: list[int] = []
        self.cancelled: set[int] = set()
        self.calls: list[tuple[InferenceRequest, bool]] = []
        self.questions: list[tuple[str, dict[str, Any]]] = []
        self.metrics: list[dict[str, Any]] = []
        self.lines: list[tuple[str, str]] = []
        self.responses: list[InferenceResponse] = []
        self.answer: Any = None

    def send_response(self, request_id: int, response: InferenceResponse | None, is_final: bool) -> None:
        self.sent.append((request_id, response, is_final))

    def drop_request(self, request_id: int) -> None:
        self.dropped.append(request_id)

    def is_cancelled(self, request_id: int) -> bool:
        return request_id in self.cancelled

    def call(self, request: InferenceRequest, *, is_decoupled: bool) -> FakeCall:
        self.calls.append((request, is_decoupled))
        return FakeCall(self.responses)

    def query(self, name: str, arguments: dict[str, Any]) -> Any:
        self.questions.append((name, arguments))
        return self.answer

    def change_metric(self, message: dict[str, Any]) -> None:
        self.metrics.append(message)

    def log(self, level: str, message: str) -> None:
        self.lines.append((level, message))

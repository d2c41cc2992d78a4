"""Health: whether the process lives, whether it should get traffic, whether a model answers.

Owns the statuses. 503 is what passes by itself (loading, stopping), 400 what doesn't (a model that failed to load).
"""

from __future__ import annotations

from starlette.responses import Response

from naiad.errors import invalid_argument, unavailable
from naiad.frontends.http.admin.body import empty_answer
from naiad.frontends.http.admin.endpoint import Question
from naiad.request.service import InferenceService


async def live(question: Question) -> Response:
    """200 while the process serves, also while it drains."""
    return empty_answer(200 if question.service.is_live() else 400)


async def ready(question: Question) -> Response:
    """200 when inferences are taken and, with strict readiness, every model is ready."""
    service = question.service
    if service.is_ready():
        return empty_answer()
    if not service.is_draining() and _has_failed_model(service):
        return empty_answer(400)
    raise unavailable("Server exiting" if service.is_draining() else "Server not ready")


async def model_ready(question: Question) -> Response:
    """200 when the model version answers; a look-up that fails has an error of its own."""
    if await question.service.is_model_ready(question.model, question.version):
        return empty_answer()
    if question.service.is_draining():
        raise unavailable("Server not ready")
    raise invalid_argument("Model version not ready")


def _has_failed_model(service: InferenceService) -> bool:
    """Return whether a model is down for good: nothing is on its way any more and something that should serve doesn't.

    Whoever asks for readiness asks often, and must not wait for a disk.
    """
    entries = [entry for entry in service.tried_models() if entry.reason != "unloaded"]
    states = {entry.state for entry in entries}
    return "LOADING" not in states and "UNAVAILABLE" in states

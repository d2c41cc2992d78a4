"""How a model's versions share the requests that name none of them: read, change, go back to the configuration.

What settings may be is the service's. Not part of the protocol, so there is no RPC for it.
"""

from __future__ import annotations

from starlette.responses import Response

from naiad.frontends.http.admin.body import json_answer, read_object
from naiad.frontends.http.admin.endpoint import Question


async def show(question: Question) -> Response:
    """The settings that hold, and how the ready versions share requests by them."""
    return json_answer(question.service.traffic(question.model))


async def change(question: Question) -> Response:
    """Put the settings of the body in place of those that hold, and show them."""
    question.service.set_traffic(question.model, read_object(question.body))
    return await show(question)


async def reset(question: Question) -> Response:
    """Let the model's configuration hold again, and show what it says."""
    question.service.reset_traffic(question.model)
    return await show(question)

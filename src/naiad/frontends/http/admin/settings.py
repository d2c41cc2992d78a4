"""What can be changed while the server runs: log settings (the logging extension), and how a model's versions share requests.

Owns the answers. What a setting may be is the service's. Traffic isn't part of the protocol, so there is no RPC for it.
"""

from __future__ import annotations

from starlette.responses import Response

from naiad.errors import invalid_argument
from naiad.frontends.http.admin.body import json_answer, read_object
from naiad.frontends.http.admin.endpoint import Question

_MOST_TRAFFIC_BYTES = 64 << 10


async def show_logs(question: Question) -> Response:
    """All log settings."""
    return json_answer(question.service.log_settings())


async def change_logs(question: Question) -> Response:
    """Change what the body names and answer with all settings; the body is needed, `{}` changes nothing."""
    return json_answer(question.service.update_log_settings(read_object(question.body)))


async def show_traffic(question: Question) -> Response:
    """The settings that hold for a model, and how its ready versions share requests by them."""
    return json_answer(question.service.traffic(question.model))


async def change_traffic(question: Question) -> Response:
    """Put the settings of the body in place of those that hold, and show them."""
    if len(question.body) > _MOST_TRAFFIC_BYTES:
        raise invalid_argument(f"traffic settings have {len(question.body)} bytes, at most {_MOST_TRAFFIC_BYTES} are allowed")
    question.service.set_traffic(question.model, read_object(question.body))
    return await show_traffic(question)


async def reset_traffic(question: Question) -> Response:
    """Let the model's configuration hold again, and show what it says."""
    question.service.reset_traffic(question.model)
    return await show_traffic(question)

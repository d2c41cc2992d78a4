"""The logging extension: read and change the log settings. What a setting may be is the service's."""

from __future__ import annotations

from starlette.responses import Response

from naiad.frontends.http.admin.body import json_answer, read_object
from naiad.frontends.http.admin.endpoint import Question


async def show(question: Question) -> Response:
    """All settings."""
    return json_answer(question.service.log_settings())


async def change(question: Question) -> Response:
    """Change what the body names and answer with all settings; the body is needed, `{}` changes nothing."""
    return json_answer(question.service.update_log_settings(read_object(question.body)))

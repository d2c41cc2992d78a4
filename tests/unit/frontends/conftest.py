"""A fake service and an app over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asgi
import pytest
from fake_service import FakeService

from naiad.frontends.http.app import create_app
from naiad.frontends.http.options import HttpOptions


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def call(service: FakeService) -> Callable[..., asgi.Reply]:
    """Call an app with default options: `call("GET", "/v2")`."""
    app: Any = create_app(service, HttpOptions())
    return lambda method, target, body=b"", headers=None: asgi.call(app, method, target, body, headers)

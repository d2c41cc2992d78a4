from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_host import FakeHost

from naiad.worker.api import host


@pytest.fixture
def server() -> Iterator[FakeHost]:
    fake = FakeHost()
    host.install(fake)
    yield fake
    host.install(FakeHost())

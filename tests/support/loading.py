"""Loading what a scan found, in tests without a server."""

from __future__ import annotations

import asyncio

from naiad.errors import InferenceServerError
from naiad.repository.layout import ScanResult
from naiad.repository.manager import RepositoryManager


async def load_found(repository: RepositoryManager, found: ScanResult) -> None:
    """Load every model that was found; what fails is in the models' states."""
    loads = (repository.load(name, lambda source=source: source) for name, source in found.sources.items())
    for outcome in await asyncio.gather(*loads, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, InferenceServerError):
            raise outcome

"""One request of a client for all models of a name, which may be several with namespaces.

Owns that all are tried, and what the client is told then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from naiad.errors import InferenceServerError


async def change_all(changes: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Make all changes at once, and wait for each. Raises the first error, with the texts of all."""
    outcomes = await asyncio.gather(*changes, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    refusals = [error for error in errors if isinstance(error, InferenceServerError)]
    for error in errors:
        if not isinstance(error, InferenceServerError):
            raise error
    if len(refusals) == 1:
        raise refusals[0]
    if refusals:
        raise InferenceServerError(refusals[0].code, "\n".join(error.message for error in refusals))

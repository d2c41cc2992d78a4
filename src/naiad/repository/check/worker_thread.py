"""Running the `auto_complete_config` of Python models for a check, in worker processes as the server does.

Owns the event loop that the workers need, on a thread of its own for as long as the check takes. There is no server: what a
model asks of other models is answered with an error.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from naiad.config.options import ServerOptions
from naiad.execution.process.context import WorkerHost
from naiad.execution.process.life.settings import settings_of
from naiad.execution.threads import ThreadPool
from naiad.observability.custom_metrics import CustomMetrics
from naiad.repository.workers import WorkerLoader


@contextmanager
def worker_loader(options: ServerOptions) -> Iterator[WorkerLoader]:
    """Give a loader of workers that may be used on the thread of the caller. Raises what `settings_of` raises."""
    settings = settings_of(options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="naiad-check", daemon=True)
    thread.start()
    try:
        yield WorkerLoader(WorkerHost(loop, ThreadPool(1, loop), settings, CustomMetrics()))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

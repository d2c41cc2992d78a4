"""What a memory budget has loaded and closed by the threads and rules of all loads.

Owns how these calls are worded for the log. Doesn't own when they are made, which is the keeper's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from naiad.repository.budget.size import Need, need_of
from naiad.repository.loader import Loader, PreparedModel
from naiad.repository.loading.attempts import Attempts, LoadKey
from naiad.repository.model import Copies, LoadedVersion, Model


@dataclass(frozen=True, slots=True)
class BudgetLoads:
    """See the module. `close_late` closes copies of a model by name that come when nobody waits for them any more."""

    loader: Loader
    attempts: Attempts
    close_late: Callable[[str, Copies], None]

    async def need(self, prepared: PreparedModel, number: int) -> Need:
        """Return what a version needs, see `need_of`."""
        return await self.attempts.once(f"looking at '{prepared.source.name}'", partial(need_of, prepared, number))

    async def load_copies(self, prepared: PreparedModel, model: Model) -> Copies:
        """Load all copies of a parked model. Raises as `Loader.load_more`."""
        plan = model.plan
        work = partial(self.loader.load_more, prepared, plan, plan.instances, model.files)
        what, key = f"loading model '{plan.name}' version {plan.version} on demand", LoadKey(plan.name, plan.version)
        return await self.attempts.repeated(key, what, work, partial(self.close_late, plan.name))

    async def plan_only(self, prepared: PreparedModel, number: int) -> LoadedVersion:
        """Return a version without copies. Raises as `Loader.plan_only`."""
        return await self.attempts.once(f"planning '{prepared.source.name}'", partial(self.loader.plan_only, prepared, number))

"""The backend `function`: Python functions of the program that the server is embedded in, run in the server's threads.

Owns the step from bound functions to a `Backend` class, one for each server. Doesn't own how a function is called (`calling`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from naiad.backends.base import Array, Backend, BackendInstance, ModelFiles, SingleRequest
from naiad.config.plan import InstancePlan, ModelPlan
from naiad.config.signature import ModelSignature
from naiad.errors import InferenceServerError, internal, invalid_argument
from naiad.server.embedded.calling import FunctionCaller, check_wanted
from naiad.server.embedded.config import BACKEND

_log = logging.getLogger("naiad.function")


class FunctionInstance:
    """See `BackendInstance`: one function. What it raises is logged with its traceback."""

    def __init__(self, model: str, caller: FunctionCaller) -> None:
        self._model = model
        self._caller = caller

    def execute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """See `BackendInstance.execute`."""
        with _logged(self._model):
            result = self._caller.call(inputs)
        check_wanted(result, outputs)
        return result

    def close(self) -> None:
        """Nothing is held: the function is the program's."""


class RequestsFunctionInstance(FunctionInstance):
    """See `RequestsInstance`: one function that takes a list of requests."""

    def execute_requests(self, requests: Sequence[SingleRequest], outputs: Sequence[str]) -> Sequence[Mapping[str, Array]]:
        """See `RequestsInstance.execute_requests`."""
        with _logged(self._model):
            results = self._caller.call_requests(requests)
        for request, result in zip(requests, results):
            check_wanted(result, request.outputs)
        return results


def function_backend(callers: Mapping[str, Sequence[FunctionCaller]]) -> type[Backend]:
    """Return the backend whose models are `callers`: one function for each instance, by model name."""

    class FunctionBackend:
        """See `Backend`. There is no file: the server's configuration says everything."""

        name: ClassVar[str] = BACKEND
        releases_gil: ClassVar[bool] = False
        default_instance_count: ClassVar[int] = 1

        @classmethod
        def signature(cls, files: ModelFiles) -> ModelSignature | None:
            """The configuration is made of the function's declaration and complete."""
            return None

        @classmethod
        def load(cls, plan: ModelPlan, instance: InstancePlan, files: ModelFiles) -> BackendInstance:
            """Take the function of this instance."""
            if plan.name not in callers:
                raise invalid_argument(f"model '{plan.name}': there is no function of that name; Server.bind gives it one")
            index = [known.name for known in plan.instances].index(instance.name)
            caller = callers[plan.name][index]
            return (RequestsFunctionInstance if caller.takes_requests else FunctionInstance)(plan.name, caller)

        @classmethod
        def must_run_in_place(cls, plan: ModelPlan) -> bool:
            """Python code of users never runs on the event loop."""
            return False

    return FunctionBackend


@contextmanager
def _logged(model: str) -> Iterator[None]:
    """Log what the function raises; an `InferenceServerError` is an answer, not a fault."""
    try:
        yield
    except InferenceServerError:
        raise
    except Exception:
        _log.exception("model '%s': its function failed", model)
        raise
    except BaseException as error:
        # sys.exit() in a function mustn't cost the server a thread.
        _log.exception("model '%s': its function failed", model)
        raise internal(f"model '{model}' failed: {type(error).__name__}: {error}") from error

"""Python models the way a Python person writes them: a class, numpy arrays, exceptions.

    from naiad.model import Context, Model, Request, Response

    class Doubler(Model):
        def load(self, context: Context) -> None:
            self.factor = float(context.parameters.get("factor", "2"))

        def infer(self, requests: list[Request]) -> list[Response]:
            return [Response({"Y": request.inputs["X"] * self.factor}) for request in requests]

With `batched = True` the arrays of a batch come joined, and what is returned is split again:

    class Classifier(Model):
        batched = True

        def infer(self, inputs: dict[str, Array]) -> dict[str, Array]:
            return {"SCORES": self.network(inputs["IMAGE"])}

`infer` may be `async def`. A model that answers a request by many responses has `stream` in its place, which yields them. Owns
the names; a model file with one such class is served like one with a `TritonPythonModel`.
"""

from naiad.errors import Code
from naiad.model.context import Context
from naiad.model.errors import ModelError
from naiad.model.model import Model
from naiad.model.others import OtherModel, OtherModels
from naiad.model.request import Array, Request, Response
from naiad.worker.api.model_config import ModelConfig

__all__ = [
    "Array",
    "Code",
    "Context",
    "Model",
    "ModelConfig",
    "ModelError",
    "OtherModel",
    "OtherModels",
    "Request",
    "Response",
]

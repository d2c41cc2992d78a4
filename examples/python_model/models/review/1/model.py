"""A text in, a score out, by two other models: a model in Naiad's own API that calls others."""

import asyncio

from naiad.model import Context, Model, ModelConfig, ModelError, Request, Response


class Review(Model):
    """SCORE of each TEXT, by the models `features` and `score`."""

    @staticmethod
    def configure(config: ModelConfig) -> None:
        """Say what the model takes and gives."""
        config.add_input({"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "SCORE", "data_type": "TYPE_FP32", "dims": [1]})
        config.set_max_batch_size(16)

    def load(self, context: Context) -> None:
        """Take the models to call."""
        self.features = context.models["features"]
        self.score = context.models["score"]

    async def infer(self, requests: list[Request]) -> list[Response | ModelError]:
        """Answer the requests of a batch at the same time: what waits for another model holds up nobody."""
        return await asyncio.gather(*map(self._answer, requests))

    async def _answer(self, request: Request) -> Response | ModelError:
        if not all(request.inputs["TEXT"].ravel()):
            return ModelError("invalid_argument", "an empty text has no score")
        features = await self.features.infer({"TEXT": request.inputs["TEXT"]})
        return await self.score.infer({"FEATURES": features.outputs["FEATURES"]})

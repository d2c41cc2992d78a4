"""How excited a text is, from its features: a model in Naiad's own API, which needs no config.pbtxt."""

import numpy as np

from naiad.model import Array, Context, Model, ModelConfig


class Excitement(Model):
    """SCORE of each row of FEATURES, from 0 to 1."""

    batched = True

    @staticmethod
    def configure(config: ModelConfig) -> None:
        """Say what the model takes and gives."""
        config.add_input({"name": "FEATURES", "data_type": "TYPE_FP32", "dims": [3]})
        config.add_output({"name": "SCORE", "data_type": "TYPE_FP32", "dims": [1]})
        config.set_max_batch_size(16)
        config.set_dynamic_batching()

    def load(self, context: Context) -> None:
        """Prepare a metric and what is constant."""
        self.scored = context.metrics.counter("texts_scored_total", "Texts that were scored")
        self.weights = np.array([[0.0], [0.0], [1.0]], np.float32)

    def infer(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Score the rows of all requests of a batch at once."""
        marks = inputs["FEATURES"] @ self.weights
        self.scored.increment(len(marks))
        return {"SCORE": marks / (marks + 1)}

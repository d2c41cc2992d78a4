"""Dynamic batching by a class in the model's folder."""

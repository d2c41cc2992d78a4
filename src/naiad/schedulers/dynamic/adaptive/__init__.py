"""The dynamic batcher without numbers: waits for more when what it has seen of the model and its load says that it pays."""

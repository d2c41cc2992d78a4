"""Tensors between requests and a worker's shared memory, and back."""

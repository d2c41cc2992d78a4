"""Executors: where an instance lives and how a batch gets there."""

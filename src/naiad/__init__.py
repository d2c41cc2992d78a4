"""Naiad: a model inference server in pure Python. Importing it imports nothing else."""

__version__ = "0.1.0.dev0"

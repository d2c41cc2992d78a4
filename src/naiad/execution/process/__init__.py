"""Instances that live in worker processes: the server's side."""

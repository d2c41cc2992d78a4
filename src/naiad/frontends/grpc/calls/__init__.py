"""The RPCs that run inference."""

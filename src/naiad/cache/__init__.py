"""Answers that are kept: the same question to the same model needs no second run."""

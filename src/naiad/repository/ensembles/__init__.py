"""Ensembles and the models of their steps: what depends on what, what fits, what is ready."""

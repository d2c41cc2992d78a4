"""The batch strategies that lie in models' folders."""

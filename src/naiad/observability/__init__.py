"""Metrics, statistics, logging."""

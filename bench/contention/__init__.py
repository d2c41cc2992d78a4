"""Requests compete for a model of a known price: traces of arrivals, the client that keeps to them, two clients at once."""

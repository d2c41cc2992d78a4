"""When which requests run together."""

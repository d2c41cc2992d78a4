"""Sockets and protocols."""

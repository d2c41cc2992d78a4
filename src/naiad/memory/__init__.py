"""Shared-memory regions and arenas. Empty until Python models come."""

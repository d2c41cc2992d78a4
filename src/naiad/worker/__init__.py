"""The child side of a worker process. Empty until Python models come."""

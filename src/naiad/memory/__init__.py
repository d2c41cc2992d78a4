"""Shared memory between the server and a worker process: segments, arenas, what the other side sees of them, and leases.

Each side owns an arena, in which it alone allocates, and maps the other's. No piece of it has a name, so nothing can be left
over. `client_regions` is another matter: memory that clients of the server make and name. Imports the standard library and
numpy only.
"""

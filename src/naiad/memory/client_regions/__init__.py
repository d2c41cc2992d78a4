"""Shared memory that clients make and name: opening it, what may be read and written of it, and which regions are registered.

Unlike the arenas beside it this memory has a name and belongs to somebody else: it is never unlinked here, and nothing that its
owner does to it may hurt the server.
"""

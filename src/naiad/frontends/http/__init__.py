"""HTTP/1.1: the protocol class with the hot routes, and a Starlette app for everything else."""

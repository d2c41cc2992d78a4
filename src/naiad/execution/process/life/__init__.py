"""A worker process: its start, its end, and the next one."""

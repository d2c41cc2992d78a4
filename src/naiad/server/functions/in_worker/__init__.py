"""What a worker process runs for a function. A folder of its own: it is on the worker's import path."""

"""Python models: which file a worker process runs, and on which interpreter."""

"""How blocking work of loading is run: attempts, time limits, and trials in a process of their own."""

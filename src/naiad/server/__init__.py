"""Assembly, process, signals."""

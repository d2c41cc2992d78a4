"""Client library. Empty until it is built."""

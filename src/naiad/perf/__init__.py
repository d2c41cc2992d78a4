"""Load generator. Empty until it is built."""

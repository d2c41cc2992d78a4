"""Configuration search. Empty until it is built."""

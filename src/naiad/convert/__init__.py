"""Model conversion. Empty until it is built."""

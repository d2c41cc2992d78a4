"""Response cache. Empty until it is built."""

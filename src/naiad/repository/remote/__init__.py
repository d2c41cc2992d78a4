"""Model repositories in object stores and at other URLs, copied to a folder on this machine."""

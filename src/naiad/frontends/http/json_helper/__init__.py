"""A process of its own that reads and writes large JSON, since that holds the GIL for as long as it takes."""

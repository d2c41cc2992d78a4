"""Leaf values: datatypes, shapes and BYTES tensors. Imports the standard library and numpy only."""

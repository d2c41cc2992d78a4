"""What a Python model sees: the classes of `triton_python_backend_utils`, our own. Standard library and numpy only."""

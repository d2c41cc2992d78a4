"""A server inside a Python program: Python functions as models, and calls of models without a socket.

`naiad` itself offers what is public here: `naiad.Server`, `naiad.serve`, `naiad.Tensor` and others, imported when first used.
"""

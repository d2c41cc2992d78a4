"""What only gRPC has: its calls, its load generator, streams of many answers, idle connections.

HTTP's side is in the folder above.
"""

"""gRPC's own framing and request heads, without I/O."""

"""gRPC's own framing, metadata and compression, without I/O."""

"""gRPC-Web: the same RPCs for browsers, over requests of HTTP/1.1."""

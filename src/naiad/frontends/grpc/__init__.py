"""gRPC: the inference service, health and reflection over HTTP/2."""

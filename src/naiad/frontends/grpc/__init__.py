"""gRPC: the inference service and the health check over HTTP/2."""

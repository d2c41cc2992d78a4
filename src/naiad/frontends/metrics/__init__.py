"""The Prometheus endpoint."""

"""Model configuration and server options: read, complete, validate, compile."""

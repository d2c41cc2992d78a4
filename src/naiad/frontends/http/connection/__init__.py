"""One HTTP/1.1 connection: framing, order, limits and time-outs, and the requests that are answered in place."""

"""The values that travel through the server, and the seams between its parts: calls, requests, responses, batches, services."""

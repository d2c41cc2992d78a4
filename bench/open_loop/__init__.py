"""Loads that come when they come, whether or not earlier ones are answered: traces, the client that follows one, the rows."""

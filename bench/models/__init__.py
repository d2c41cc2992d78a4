"""Makes what the servers load: model repositories, and the identity in Python."""

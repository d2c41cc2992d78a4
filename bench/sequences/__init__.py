"""Many live sequences on one model: what is sent, how it is sent, and both servers' figures."""

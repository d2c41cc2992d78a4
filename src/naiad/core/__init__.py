"""The one object that frontends hold."""

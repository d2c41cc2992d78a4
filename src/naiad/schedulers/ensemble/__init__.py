"""The ensemble scheduler: a request goes from step to step, each a request of another model."""

"""The default scheduler: first in, first out, one request an execution."""

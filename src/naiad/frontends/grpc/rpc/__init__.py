"""The RPCs that ask and set: everything but inference."""

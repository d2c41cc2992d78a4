"""The compiled descriptor set and its private pool."""

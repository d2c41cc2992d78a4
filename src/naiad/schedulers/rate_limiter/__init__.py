"""Which instance may run next, when instances share resources that there are too few of."""

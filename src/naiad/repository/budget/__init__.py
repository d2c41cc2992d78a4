"""Which models are in memory when not all fit: the limit, what each takes, who goes and who comes back."""

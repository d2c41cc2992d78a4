"""Who changes what is loaded: clients, the repositories themselves, or nobody."""

"""Model repositories: layout, versions, loading, states."""

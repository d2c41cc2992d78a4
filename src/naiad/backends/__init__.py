"""One folder for each engine; found through the table."""

"""Finding earlier occurrences of a context: in the sequence itself, and in a datastore."""

"""Read-only REST API over the store."""

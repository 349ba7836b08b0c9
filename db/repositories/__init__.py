"""Reads and writes, one module per subject."""

"""Validated settings, options and requests."""

"""Acceptance metrics and statistics over traces."""

"""Serving by domain: which layers a request skips, and its text as it comes; for any server."""

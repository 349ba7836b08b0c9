"""Prefect flows, the local services around them, and the command line."""

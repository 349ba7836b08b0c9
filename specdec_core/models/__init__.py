"""Targets: references, checkpoints, the forward pass, caches and sparse views."""

"""Losses of draft training: one registry, an eager reference and a memory-bounded form."""

"""Fixtures of every test of a run."""

from tests.run_fixtures import control, settings, store

__all__ = ["control", "settings", "store"]

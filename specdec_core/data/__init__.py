"""Suites, prompts, splits and scores."""

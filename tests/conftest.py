"""Fixtures shared by every test folder."""

from tests.integration.postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

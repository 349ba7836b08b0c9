"""Alembic's entry: run by `db.migrate` with a connection it has opened."""

from alembic import context

from db.migrate import run_environment

run_environment(context)  # type: ignore[arg-type]  # Alembic's proxy of the same interface

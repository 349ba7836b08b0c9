"""The application that the service runs: REST API and pages together."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fastapi import FastAPI

from dashboards.links import Services
from dashboards.pages import make_router
from db.api import app as api
from db.store import Store
from specdec_core.config.settings import Settings


def create_app(
    settings: Settings | None = None,
    *,
    store: Store | None = None,
    environment: Mapping[str, str] | None = None,
) -> FastAPI:
    """Return the application; without arguments it is a factory for a server.

    Args:
        settings: Where databases and services are; default: environment.
        store: An open store, left open at shutdown; default: one of its own from `settings`.
        environment: Where the addresses of other services are looked up; default: this process's.

    Raises:
        ConfigError: if the database URL cannot be used.
        StoreError: if the database cannot be opened.
    """
    settings = settings or Settings()
    found = os.environ if environment is None else environment
    services = Services.of_environment(settings, found)
    return api.create_app(settings, store=store, routers=[make_router(services)])

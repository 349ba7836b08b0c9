"""The REST application under ``/api/v1``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import APIRouter, Depends, FastAPI

from db.api.common import problems, require_api_key
from db.api.problems import install_handlers
from db.api.routes import checkpoints, evaluations, health, measurements, profiles, runs
from db.store import Store
from db.version import package_version
from specdec_core.config.settings import Settings

PREFIX = "/api/v1"

_TAGS = [
    {"name": "profiles", "description": "What to skip for a target, domain and drafter"},
    {"name": "runs", "description": "Runs of flows and where their numbers come from"},
    {"name": "evaluations", "description": "Single evaluations, by content key"},
    {"name": "benchmarks", "description": "Cells of benchmark runs with raw timings"},
    {"name": "calibrations", "description": "Step-time curves by hardware"},
    {"name": "checkpoints", "description": "Trained drafts, expected and realised acceptance"},
    {"name": "health", "description": "Whether the service can answer"},
]


def create_app(
    settings: Settings | None = None,
    *,
    store: Store | None = None,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """Return the application.

    Args:
        settings: Where the database is and which key requests must send; default: environment.
        store: An open store, left open at shutdown; default: one of its own from `settings`.
        routers: More routes of the same application, such as pages; they find the store with
            `db.api.common.get_store` and are not behind the API key.

    Raises:
        ConfigError: if the database URL cannot be used.
        StoreError: if the database cannot be opened.
    """
    settings = settings or Settings()
    is_own = store is None
    opened = Store.open(settings.resolved_database_url) if store is None else store

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        if is_own:
            opened.close()

    app = FastAPI(
        title="specdec-lab",
        summary="Skip profiles, drafts, evaluations and benchmarks of speculative decoding",
        version=package_version(),
        openapi_tags=_TAGS,
        lifespan=lifespan,
    )
    app.state.store = opened
    app.state.api_key = settings.api_key
    app.state.resolved = profiles.AnswerCache()
    install_handlers(app)
    app.include_router(_api())
    for router in routers:
        app.include_router(router)
    return app


def _api() -> APIRouter:
    api = APIRouter(prefix=PREFIX)
    api.include_router(health.router)
    protected = APIRouter(
        dependencies=[Depends(require_api_key)],
        responses=problems(
            HTTPStatus.UNAUTHORIZED,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            HTTPStatus.SERVICE_UNAVAILABLE,
        ),
    )
    for module in (profiles, runs, evaluations, measurements, checkpoints):
        protected.include_router(module.router)
    api.include_router(protected)
    return api

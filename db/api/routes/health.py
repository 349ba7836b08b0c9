"""Whether the service can answer."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from db.api.common import StoreDependency, problems
from db.version import package_version
from specdec_core.config.base import Record

router = APIRouter(tags=["health"])


class Health(Record):
    """The state of the service; a database out of reach is a 503 problem instead."""

    status: Literal["ok"] = "ok"
    database: Literal["sqlite", "postgresql"]
    schema_revision: str | None = Field(description="revision stored in the database")
    version: str = Field(description="installed version of specdec-lab")


@router.get(
    "/health",
    summary="Database reachable, schema revision, version",
    responses=problems(HTTPStatus.SERVICE_UNAVAILABLE),
)
def get_health(store: StoreDependency) -> Health:
    """Ask the database and answer with its schema revision; never needs a key."""
    return Health(
        database="sqlite" if store.database.is_sqlite else "postgresql",
        schema_revision=store.schema_revision(),
        version=package_version(),
    )

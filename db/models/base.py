"""The declarative base of every table, and the schema revision that the tables describe."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import MetaData, String
from sqlalchemy.orm import DeclarativeBase

from db.columns import Document, UtcDateTime

SCHEMA_REVISION = "0006"
TABLE_PREFIX = "specdec_"
VERSION_TABLE = "specdec_alembic_version"

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Declarative base of every table."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - read once by SQLAlchemy, as its documentation asks
        str: String(),
        datetime: UtcDateTime(),
        dict[str, Any]: Document(),
        list[Any]: Document(),
    }

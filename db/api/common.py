"""What routes share: the store, the API key, pages, entity tags."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Request, Response, Security
from fastapi.security import APIKeyHeader
from pydantic import BaseModel, Field

from db.api.problems import MEDIA_TYPE, Problem, ProblemError
from db.store import Store
from specdec_core.config.base import Record

ItemT = TypeVar("ItemT")
MAX_PAGE = 500

_KEY_HEADER = APIKeyHeader(
    name="X-API-Key", auto_error=False, description="needed where the server sets SPECDEC_API_KEY"
)


class Paging(Record):
    """Which part of a list is asked for; unknown query parameters are refused."""

    limit: int = Field(50, ge=1, le=MAX_PAGE, description="most items on the page")
    offset: int = Field(0, ge=0, le=2**31, description="items before the page")


class Page(Record, Generic[ItemT]):
    """One page of a list."""

    items: list[ItemT]
    total: int = Field(description="items on all pages together")
    limit: int
    offset: int


def page_of(items: list[ItemT], total: int, paging: Paging) -> Page[ItemT]:
    """Return `items` as the page that was asked for."""
    return Page(items=items, total=total, limit=paging.limit, offset=paging.offset)


def page_within(items: Sequence[ItemT], paging: Paging) -> Page[ItemT]:
    """Return the page that was asked for of all `items`."""
    return page_of(list(items[paging.offset :][: paging.limit]), len(items), paging)


async def get_store(request: Request) -> Store:
    """Return the store of the application."""
    store: Store = request.app.state.store
    return store


StoreDependency = Annotated[Store, Depends(get_store)]


async def require_api_key(
    request: Request, given: Annotated[str | None, Security(_KEY_HEADER)]
) -> None:
    """Check the ``X-API-Key`` header where the server has a key.

    Raises:
        ProblemError: 401 if the key is missing or wrong.
    """
    expected: str | None = request.app.state.api_key
    if expected is None:
        return
    if given is None:
        code, detail = "api-key-missing", "this server asks for an API key: send it in X-API-Key"
    elif not secrets.compare_digest(given.encode(), expected.encode()):
        code, detail = "api-key-wrong", "the key in X-API-Key is not this server's: correct it"
    else:
        return
    raise ProblemError(
        HTTPStatus.UNAUTHORIZED, code, detail, headers={"WWW-Authenticate": "ApiKey"}
    )


@dataclass(frozen=True, slots=True)
class Tagged:
    """The JSON of a record with its entity tag, ready to be sent."""

    body: bytes
    tag: str

    @classmethod
    def of(cls, record: BaseModel) -> Tagged:
        """Return the JSON of `record`; equal records have equal tags."""
        body = record.model_dump_json().encode()
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def tagged_response(request: Request, answer: Tagged) -> Response:
    """Return `answer` as JSON with its entity tag, or 304 where the client has it already."""
    headers = {"ETag": answer.tag, "Cache-Control": "no-cache"}
    if _is_known(request.headers.get("if-none-match"), answer.tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(answer.body, media_type="application/json", headers=headers)


def _is_known(header: str | None, tag: str) -> bool:
    """Weak comparison of a tag with an ``If-None-Match`` header."""
    if header is None:
        return False
    known = {part.strip().removeprefix("W/") for part in header.split(",")}
    return "*" in known or tag in known


def problems(*statuses: HTTPStatus) -> dict[int | str, dict[str, object]]:
    """Return the OpenAPI entries of the problem responses that a route may give."""
    return {
        status.value: {
            "model": Problem,
            "description": status.phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }

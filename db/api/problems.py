"""Errors as ``application/problem+json`` (RFC 9457) with a machine code."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.exceptions import HTTPException

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError, SpecDecError, StoreError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Problem(Record):
    """What went wrong; some codes carry more fields, such as ``closest`` or ``errors``."""

    type: str = Field(description="URN that ends in the code")
    title: str = Field(description="reason phrase of the status")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="what was given, what was expected, what to do")
    code: str = Field(description="stable machine code")


class ProblemError(Exception):
    """Ends a request with a problem response."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        **extensions: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.extensions = extensions


def not_found(subject: str, name: object) -> ProblemError:
    """Return the 404 problem for a `subject` such as ``run`` that is not stored."""
    return ProblemError(
        HTTPStatus.NOT_FOUND,
        f"{subject}-not-found",
        f"{subject} {name!r} is not stored: list what is with GET /api/v1/{subject}s",
    )


def problem_response(error: ProblemError) -> JSONResponse:
    """Return the response that tells `error`."""
    problem = Problem(
        type=f"urn:specdec:problem:{error.code}",
        title=error.status.phrase,
        status=error.status.value,
        detail=error.detail,
        code=error.code,
    )
    return JSONResponse(
        {**problem.model_dump(), **error.extensions},
        status_code=error.status.value,
        headers=error.headers,
        media_type=MEDIA_TYPE,
    )


def install_handlers(app: FastAPI) -> None:
    """Make every error of `app` a problem response."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(SpecDecError, _on_ours)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_problem(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)
    return problem_response(error)


async def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [
        {"field": ".".join(str(part) for part in each["loc"][1:]), "message": each["msg"]}
        for each in error.errors()
    ]
    detail = "; ".join(f"{each['field']}: {each['message']}" for each in errors)
    return problem_response(
        ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "bad-parameter",
            f"request parameters are not valid: {detail}; see /openapi.json",
            errors=errors,
        )
    )


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return problem_response(
        ProblemError(
            status,
            status.phrase.lower().replace(" ", "-"),
            f"{request.method} {request.url.path}: {error.detail}; see /openapi.json",
            headers=dict(error.headers or {}),
        )
    )


async def _on_ours(_request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ConfigError):
        status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "bad-parameter"
    elif isinstance(error, StoreError):
        logger.warning("store: %s", error)
        status, code = HTTPStatus.SERVICE_UNAVAILABLE, "store-unavailable"
    else:
        logger.error("request failed: %s", error)
        status, code = HTTPStatus.INTERNAL_SERVER_ERROR, "internal"
    return problem_response(ProblemError(status, code, str(error)))


async def _on_unexpected(request: Request, error: Exception) -> JSONResponse:
    return problem_response(
        ProblemError(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal",
            f"{request.method} {request.url.path} failed with {type(error).__name__}: see the "
            "server's log",
        )
    )

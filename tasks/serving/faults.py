"""Errors in OpenAI's shape."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from specdec_core.errors import ConfigError, QueueFullError

logger = logging.getLogger(__name__)

_KINDS = {401: "authentication_error", 404: "invalid_request_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """Ends a request with an error.

    Attributes:
        status: HTTP status.
        param: Name of the parameter that is wrong.
        code: Machine code.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


def error_of(error: Exception) -> ApiError:
    """Return what a client is told of `error`."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return ApiError(429, str(error), code="queue_full")
    if isinstance(error, ConfigError):
        return ApiError(400, str(error))
    logger.error("a request failed", exc_info=error)
    return ApiError(500, f"{type(error).__name__}: see the server's log", code="internal_error")


def error_body(error: ApiError) -> dict[str, Any]:
    """Return an error as OpenAI's clients read it."""
    kind = _KINDS.get(error.status, "invalid_request_error")
    if error.status >= 500:
        kind = "server_error"
    return {
        "error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    }


def install_handlers(app: FastAPI) -> None:
    """Make every error of `app` one of OpenAI's shape."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    for kind in (ApiError, ConfigError, QueueFullError, Exception):
        app.add_exception_handler(kind, _on_any)


def _response(error: ApiError) -> JSONResponse:
    headers = {"Retry-After": "1"} if error.status == 429 else None
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


async def _on_any(_request: Request, error: Exception) -> JSONResponse:
    return _response(error_of(error))


async def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    parts, names = [], []
    for each in error.errors():
        name = ".".join(str(part) for part in each["loc"][1:])
        message = each["msg"].removeprefix("Value error, ")
        parts.append(f"{name}: {message}" if name else message)
        names.append(name or None)
    return _response(ApiError(400, "; ".join(parts), names[0]))


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path}: {error.detail}"
    return _response(ApiError(error.status_code, text))

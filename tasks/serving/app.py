"""An OpenAI-compatible server over one target: for trial and evaluation, one decode at a time."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.config.serving import ServeConfig
from specdec_core.serving.audit import AuditSnapshot
from tasks.serving.desk import Desk
from tasks.serving.faults import ApiError, install_handlers
from tasks.serving.front import Asked, Front
from tasks.serving.openai import ChatRequest, CompletionRequest
from tasks.serving.replies import Reply
from tasks.serving.setup import Serving

NOTICE = "for trial and evaluation, one request at a time: not a serving engine"


class Switch(Record):
    """The kill switch of one domain, or of all."""

    on: bool = Field(description="true runs new requests on the dense target")
    domain: str | None = Field(None, description="null for all domains")


def create_app(serving: Serving, config: ServeConfig, api_key: str | None = None) -> FastAPI:
    """Return the application; its decoding thread lives from start-up to shutdown.

    Args:
        serving: The loaded target with its controller.
        config: Bounds, and the domain of requests that name none.
        api_key: If given, requests must send it as bearer token.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        desk = Desk(serving.generator, config.queue)
        app.state.front = Front(serving, config, desk)
        yield
        await run_in_threadpool(desk.close)

    app = FastAPI(title="specdec serve", summary=NOTICE, lifespan=lifespan)
    app.state.api_key = api_key
    app.state.started = int(time.time())
    install_handlers(app)
    app.include_router(_health)
    app.include_router(_routes, dependencies=[Depends(_require_key)])
    return app


async def _front(request: Request) -> Front:
    front: Front = request.app.state.front
    return front


async def _require_key(request: Request) -> None:
    expected: str | None = request.app.state.api_key
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if expected is not None and not secrets.compare_digest(given.encode(), expected.encode()):
        raise ApiError(
            401, "send this server's key as 'Authorization: Bearer KEY'", code="invalid_api_key"
        )


FrontDependency = Annotated[Front, Depends(_front)]
_health = APIRouter()
_routes = APIRouter()


@_health.get("/health")
async def health() -> dict[str, str]:
    """Say that the server answers, and what it is for."""
    return {"status": "ok", "notice": NOTICE}


@_routes.get("/v1/models")
async def models(request: Request, front: FrontDependency) -> dict[str, Any]:
    """List the one model of this server."""
    return {"object": "list", "data": [_model(request, front)]}


@_routes.get("/v1/models/{name:path}")
async def model(request: Request, front: FrontDependency, name: str) -> dict[str, Any]:
    """Describe the model of this server."""
    if name != front.model:
        raise ApiError(404, f"the model {name!r} does not exist", "model", "model_not_found")
    return _model(request, front)


@_routes.post("/v1/completions", response_model=None)
async def complete(request: Request, front: FrontDependency, asked: CompletionRequest) -> Response:
    """Go on with a prompt as it stands."""
    return await _answer(request, front, asked, Reply("text_completion", front.model))


@_routes.post("/v1/chat/completions", response_model=None)
async def chat(request: Request, front: FrontDependency, asked: ChatRequest) -> Response:
    """Answer a conversation."""
    return await _answer(request, front, asked, Reply("chat.completion", front.model))


@_routes.get("/specdec/controller")
async def snapshot(front: FrontDependency) -> AuditSnapshot:
    """Return the audit counters of the runtime controller."""
    return front.serving.controller.snapshot()


@_routes.put("/specdec/controller/dense")
async def switch(front: FrontDependency, asked: Switch) -> AuditSnapshot:
    """Turn the kill switch on or off; requests under way keep their view."""
    controller = front.serving.controller
    (controller.kill if asked.on else controller.revive)(asked.domain)
    return controller.snapshot()


async def _answer(request: Request, front: Front, asked: Asked, reply: Reply) -> Response:
    # Profiles may have to be asked for over the network.
    visit = await front.submit(*await run_in_threadpool(front.prepare, asked))
    if asked.stream:
        events = front.stream(visit, reply, with_usage=asked.wants_usage)
        return StreamingResponse(events, media_type="text/event-stream")
    return JSONResponse(await front.whole(visit, reply, request.is_disconnected))


def _model(request: Request, front: Front) -> dict[str, Any]:
    return {
        "id": front.model,
        "object": "model",
        "created": request.app.state.started,
        "owned_by": "specdec-lab",
    }

"""The routes of the pages: one page, its tables as CSV, its scripts and styles."""

from __future__ import annotations

import base64
import binascii
import logging
import secrets
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from dashboards.assets import asset
from dashboards.leaderboard import leaderboard_table, load_leaderboard
from dashboards.links import PROFILE_TABLES, Services
from dashboards.outputs import load_output, tokens_table
from dashboards.queries import Question, load_detail, load_overview
from dashboards.render import (
    error_page,
    leaderboard_page,
    output_page,
    overview_page,
    training_page,
)
from dashboards.sweeps import SWEEP_TABLES
from dashboards.tables import DETAIL_TABLES, SEARCH_TABLES, profiles_table, runs_table
from dashboards.training import load_training
from dashboards.training_views import TRAINING_TABLES
from dashboards.views import Table
from db.api.common import StoreDependency
from db.api.problems import ProblemError
from db.store import Store
from specdec_core.errors import ConfigError, StoreError

logger = logging.getLogger(__name__)

_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_CSV_ROWS = 500
_OVERVIEW_TABLES = ("profiles", "runs")


class PageRoute(APIRoute):
    """A route whose errors are pages for people."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, its deliberate errors caught."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except ProblemError as error:
                return _error(error.status, error.detail, error.headers)
            except RequestValidationError as error:
                fields = [f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()]
                return _error(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(fields))
            except ConfigError as error:
                return _error(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
            except StoreError as error:
                logger.warning("store: %s", error)
                return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

        return answer


async def require_page_key(request: Request) -> None:
    """Ask browsers for the API key, where the server has one, as the password of any user.

    Raises:
        ProblemError: 401 if it is missing or wrong.
    """
    expected: str | None = request.app.state.api_key
    if not expected:
        return
    given = request.headers.get("x-api-key") or _basic_password(request)
    if given is None or not secrets.compare_digest(given.encode(), expected.encode()):
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED,
            "api-key-wrong" if given else "api-key-missing",
            "this server asks for its API key: give it as the password, any user name will do",
            headers={"WWW-Authenticate": 'Basic realm="specdec-lab", charset="UTF-8"'},
        )


def make_router(services: Services) -> APIRouter:
    """Return the routes of the pages, to be included in the application of the REST API.

    Args:
        services: Where other services are found.
    """
    router = APIRouter(include_in_schema=False, route_class=PageRoute)
    protected = APIRouter(dependencies=[Depends(require_page_key)], route_class=PageRoute)

    @protected.get("/")
    def page(store: StoreDependency, question: Annotated[Question, Query()]) -> Response:
        html = overview_page(load_overview(store, question), services)
        return Response(html, media_type="text/html", headers=_PAGE_HEADERS)

    @protected.get("/leaderboard")
    def leaderboard(store: StoreDependency, question: Annotated[Question, Query()]) -> Response:
        html = leaderboard_page(load_leaderboard(store, question.run))
        return Response(html, media_type="text/html", headers=_PAGE_HEADERS)

    @protected.get("/training")
    def training(store: StoreDependency, question: Annotated[Question, Query()]) -> Response:
        html = training_page(load_training(store, question), services)
        return Response(html, media_type="text/html", headers=_PAGE_HEADERS)

    @protected.get("/outputs")
    def output(store: StoreDependency, question: Annotated[Question, Query()]) -> Response:
        html = output_page(load_output(store, question))
        return Response(html, media_type="text/html", headers=_PAGE_HEADERS)

    @protected.get("/dashboards/{name}.csv")
    def table_csv(
        name: str, store: StoreDependency, question: Annotated[Question, Query()]
    ) -> Response:
        text = _csv(store, name, question)
        disposition = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
        return Response(text, media_type="text/csv", headers=disposition)

    router.get("/dashboards/static/{name}")(_static)
    router.include_router(protected)
    return router


def _static(request: Request, name: str) -> Response:
    found = asset(name)
    if found is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, "asset-not-found", f"there is no file {name!r}")
    headers = {
        "ETag": f'"{found.tag}"',
        "Cache-Control": "public, max-age=31536000, immutable",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if f'"{found.tag}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.gzipped, media_type=found.media_type, headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)


def _csv(store: Store, name: str, question: Question) -> str:
    """The CSV of a table; those of a run name it in their first column."""
    if name == "profiles":
        profiles = store.profiles.list(
            question.domain, question.target, question.drafter, limit=_CSV_ROWS
        )
        return profiles_table(profiles).to_csv()
    if name == "runs":
        return runs_table(store.runs.list(limit=_CSV_ROWS)).to_csv()
    if name == "leaderboard":
        board = load_leaderboard(store, question.run)
        lead = [("run_id", board.run.id)] if board else []
        return leaderboard_table(board.cells if board else ()).to_csv(lead)
    if name == "tokens":
        return _tokens_csv(store, question)
    if name in TRAINING_TABLES:
        return _training_csv(store, name, question)
    of_runs = (*SEARCH_TABLES, *SWEEP_TABLES, *DETAIL_TABLES)
    known = (*_OVERVIEW_TABLES, *of_runs, *TRAINING_TABLES, "leaderboard", "tokens")
    if name not in known:
        detail = f"there is no table {name!r}: choose one of {', '.join(known)}"
        raise ProblemError(HTTPStatus.NOT_FOUND, "table-not-found", detail)
    run_id, table = _table_of_run(store, name, question)
    return table.to_csv([] if name in PROFILE_TABLES else [("run_id", run_id)])


def _training_csv(store: Store, name: str, question: Question) -> str:
    page = load_training(store, question)
    training = page.training if name != "checkpoints" else None
    lead = [("training_key", training.key)] if training else []
    return TRAINING_TABLES[name](page).to_csv(lead)


def _tokens_csv(store: Store, question: Question) -> str:
    output = load_output(store, question)
    if output is None or output.cell is None or output.sample is None:
        detail = "there is no output of a benchmark to show: measure one with specdec bench"
        raise ProblemError(HTTPStatus.NOT_FOUND, "output-not-found", detail)
    cell = output.cell
    lead = [("run_id", output.run.id), ("domain", cell.domain), ("drafter", cell.drafter)]
    return tokens_table(output).to_csv([*lead, ("item_id", output.sample.item_id)])


def _table_of_run(store: Store, name: str, question: Question) -> tuple[str, Table]:
    if question.run or question.profile:
        detail = load_detail(store, question, ())
    else:
        detail = load_overview(store, question).detail
    if detail is None:
        raise ProblemError(
            HTTPStatus.NOT_FOUND,
            "profile-not-found",
            f"table {name!r} belongs to a run and no active profile matches: give run=ID",
        )
    if name in DETAIL_TABLES:
        return detail.run.id, DETAIL_TABLES[name](detail)
    if name in SEARCH_TABLES and detail.search is not None:
        return detail.run.id, SEARCH_TABLES[name](detail.search)
    if name in SWEEP_TABLES and detail.sweep is not None:
        return detail.run.id, SWEEP_TABLES[name](detail.sweep)
    problem = detail.problem or f"run {detail.run.id} has no table {name!r}"
    raise ProblemError(HTTPStatus.NOT_FOUND, "result-not-found", problem)


def _basic_password(request: Request) -> str | None:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None


def _error(status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(
        error_page(status, detail),
        status_code=status,
        media_type="text/html",
        headers=_PAGE_HEADERS | (headers or {}),
    )

"""Skip profiles: what a serving system asks for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from db.api.common import (
    Page,
    Paging,
    StoreDependency,
    Tagged,
    page_of,
    page_within,
    problems,
    tagged_response,
)
from db.api.problems import ProblemError, not_found
from db.domain_maps import domain_map
from db.lifecycle import ProfileTransition, ProfileVerification
from db.repositories.resolution import not_found_text
from db.schemas import ProfileStatus, SkipProfile
from db.store import Store
from specdec_core.config.base import Record
from specdec_core.config.domain_map import DomainMap
from specdec_core.config.dtype import DType
from specdec_core.errors import ProfileNotFoundError

router = APIRouter(prefix="/profiles", tags=["profiles"])
ProfileId = Annotated[int, Path(ge=1, le=2**31 - 1, description="id of one profile version")]
_MAX_ANSWERS = 4096
_Asked = tuple[str, str, str | None, str | None]
"""Target, domain, drafter and type, the fields of `ResolveQuery`."""
_NOT_MODIFIED: dict[int | str, dict[str, object]] = {
    304: {"description": "The version named in If-None-Match is still the answer"}
}


class ProfileQuery(Paging):
    """Filters of the profile list."""

    domain: str | None = Field(None, min_length=1)
    target: str | None = Field(None, min_length=1, description="model reference or identity")
    drafter: str | None = Field(None, min_length=1, description="method or method:option=value,..")
    status: ProfileStatus | None = None


class MapQuery(Record):
    """What a domain map is for."""

    target: str = Field(min_length=1, description="model reference or identity")
    drafter: str = Field(min_length=1, description="method or method:option=value,..")
    dtype: DType | None = Field(None, description="needed where profiles of several are active")


class ResolveQuery(Record):
    """What a serving system knows when it asks for its skip set."""

    target: str = Field(min_length=1, description="model reference or identity")
    domain: str = Field(min_length=1)
    drafter: str | None = Field(
        None, min_length=1, description="method or method:option=value,..; default: last published"
    )
    dtype: DType | None = Field(None, description="default: last published")


class AnswerCache:
    """Encoded active profiles.

    A stored version changes in its status alone, and only active ones are kept here: which
    version is active is asked of the database every time, its JSON is made once.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[int, str], Tagged] = {}

    def find(self, store: Store, asked: _Asked) -> Tagged | None:
        """Return the active profile for a question, None without one."""
        name = store.profiles.active_name(*asked)
        if name is None:
            return None
        answer = self._answers.get(name)
        if answer is not None:
            return answer
        try:
            profile = store.profiles.resolve(*asked)
        except ProfileNotFoundError:  # retired since
            return None
        assert profile.id is not None  # a stored one has its id
        answer = Tagged.of(profile)
        if len(self._answers) >= _MAX_ANSWERS:
            self._answers.clear()
        self._answers[profile.id, profile.run_id] = answer
        return answer


@router.get("", summary="List profile versions, newest first")
def list_profiles(
    store: StoreDependency, query: Annotated[ProfileQuery, Query()]
) -> Page[SkipProfile]:
    """Return the profile versions that match every filter given."""
    filters = query.model_dump(exclude={"limit", "offset"})
    profiles = store.profiles.list(**filters, limit=query.limit, offset=query.offset)
    return page_of(profiles, store.profiles.count(**filters), query)


@router.get(
    "/resolve",
    summary="The active profile for a target and domain",
    response_model=SkipProfile,
    responses=problems(HTTPStatus.NOT_FOUND) | _NOT_MODIFIED,
)
async def resolve_profile(
    request: Request, store: StoreDependency, query: Annotated[ResolveQuery, Query()]
) -> Response:
    """Return the active profile, or 404 with the closest keys and how they differ.

    Send the ``ETag`` of the last answer in ``If-None-Match`` to learn cheaply that it still holds.
    """
    asked = (query.target, query.domain, query.drafter, query.dtype)
    answers: AnswerCache = request.app.state.resolved
    if store.database.is_sqlite:  # never waits, and a thread costs more than the query
        answer = answers.find(store, asked)
    else:
        answer = await run_in_threadpool(answers.find, store, asked)
    if answer is None:  # looking for the closest takes longer, the more profiles are active
        raise await run_in_threadpool(_not_answered, store, asked)
    return tagged_response(request, answer)


@router.get(
    "/map",
    summary="What every domain of a target and drafter skips, as one document",
    response_model=DomainMap,
    responses=problems(HTTPStatus.NOT_FOUND) | _NOT_MODIFIED,
)
def map_profiles(
    request: Request, store: StoreDependency, query: Annotated[MapQuery, Query()]
) -> Response:
    """Return the domain map that `specdec profiles map` writes, with its entity tag."""
    try:
        found = domain_map(store, query.target, query.drafter, query.dtype)
    except ProfileNotFoundError as error:
        raise ProblemError(HTTPStatus.NOT_FOUND, "profile-not-found", str(error)) from error
    return tagged_response(request, Tagged.of(found))


def _not_answered(store: Store, asked: _Asked) -> ProblemError:
    closest = store.profiles.closest(*asked)
    return ProblemError(
        HTTPStatus.NOT_FOUND,
        "profile-not-found",
        not_found_text(dict(zip(ResolveQuery.model_fields, asked, strict=True)), closest),
        closest=[each.model_dump(mode="json") for each in closest],
    )


@router.get(
    "/{profile_id}",
    summary="One profile version",
    response_model=SkipProfile,
    responses=problems(HTTPStatus.NOT_FOUND) | _NOT_MODIFIED,
)
def get_profile(request: Request, store: StoreDependency, profile_id: ProfileId) -> Response:
    """Return one version by id."""
    profile = store.profiles.get(profile_id)
    if profile is None:
        raise not_found("profile", profile_id)
    return tagged_response(request, Tagged.of(profile))


@router.get(
    "/{profile_id}/history",
    summary="Every version of a profile's key, newest first",
    responses=problems(HTTPStatus.NOT_FOUND),
)
def profile_history(
    store: StoreDependency, profile_id: ProfileId, paging: Annotated[Paging, Query()]
) -> Page[SkipProfile]:
    """Return the versions of the key of one profile."""
    versions = store.profiles.history(profile_id)
    if not versions:
        raise not_found("profile", profile_id)
    return page_within(versions, paging)


@router.get(
    "/{profile_id}/transitions",
    summary="Every change of a profile's status, oldest first",
    responses=problems(HTTPStatus.NOT_FOUND),
)
def profile_transitions(
    store: StoreDependency, profile_id: ProfileId, paging: Annotated[Paging, Query()]
) -> Page[ProfileTransition]:
    """Return when, by whom and why one version got each of its statuses."""
    moves = store.profiles.transitions(profile_id)
    if not moves:
        raise not_found("profile", profile_id)
    return page_within(moves, paging)


@router.get(
    "/{profile_id}/verifications",
    summary="Every repeated measurement of a profile, oldest first",
    responses=problems(HTTPStatus.NOT_FOUND),
)
def profile_verifications(
    store: StoreDependency, profile_id: ProfileId, paging: Annotated[Paging, Query()]
) -> Page[ProfileVerification]:
    """Return the held-out comparisons that were made after one version was published."""
    if store.profiles.get(profile_id) is None:
        raise not_found("profile", profile_id)
    found = store.profiles.verifications(profile_id)
    return page_within(found, paging)

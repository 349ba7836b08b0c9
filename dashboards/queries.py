"""From the store to what a page shows: plain records, no HTML."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dashboards.summary import SearchSummary, read_summary
from dashboards.sweeps import SWEEP_KINDS, SweepSummary, read_sweep
from db.api.problems import not_found
from db.lifecycle import ProfileTransition, ProfileVerification
from db.schemas import RunRecord, SkipProfile
from db.store import Store
from specdec_core.bench.metrics import AcceptanceCounts, count_acceptance

logger = logging.getLogger(__name__)

SEARCH_KIND = "tss-search"
BENCHMARK_KINDS = ("benchmark", "nightly-benchmark", "verify")
TRAINING_KIND, LOSS_KIND = "train-drafter", "compare-losses"
NUM_RUNS = 8
MAX_PROFILES = 500
MAX_DEPTH = 8


class Question(BaseModel):
    """What the address of a page asks for; an empty value is as good as none."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    domain: str | None = None
    target: str | None = None
    drafter: str | None = None
    profile: int | None = Field(None, ge=1, le=2**31 - 1)
    checkpoint: int | None = Field(None, ge=1, le=2**31 - 1)
    run: str | None = Field(None, max_length=64)
    item: str | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @property
    def filters(self) -> dict[str, str]:
        """The filters that were given."""
        given = {"domain": self.domain, "target": self.target, "drafter": self.drafter}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Depth:
    """Share of the steps with a draft that accepted at least k tokens, k = 1, 2, .."""

    dense: tuple[float, ...]
    sparse: tuple[float, ...]
    num_steps_dense: int
    num_steps_sparse: int


@dataclass(frozen=True, slots=True)
class Detail:
    """One run, its profile, and what its search found."""

    run: RunRecord
    profile: SkipProfile | None = None
    history: tuple[SkipProfile, ...] = ()
    transitions: tuple[ProfileTransition, ...] = ()
    verifications: tuple[ProfileVerification, ...] = ()
    search: SearchSummary | None = None
    sweep: SweepSummary | None = None
    depth: Depth | None = None
    num_evaluations: int = 0
    problem: str | None = None
    """Why there are no figures."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the page."""

    question: Question
    profiles: tuple[SkipProfile, ...]
    """Active ones that match the filters, newest first."""
    choices: dict[str, tuple[str, ...]]
    """Values of each filter that occur among active profiles."""
    runs: tuple[RunRecord, ...]
    """Latest searches, newest first."""
    detail: Detail | None


def load_overview(store: Store, question: Question) -> Overview:
    """Return what the page shows for `question`; the newest match is selected by default.

    Raises:
        ProblemError: 404 if the profile or run asked for is not stored.
        StoreError: if the database cannot be read.
    """
    active = store.profiles.list(status="active", limit=MAX_PROFILES)
    profiles = tuple(profile for profile in active if _matches(profile, question))
    return Overview(
        question=question,
        profiles=profiles,
        choices=_choices(active),
        runs=_latest_runs(store),
        detail=load_detail(store, question, profiles),
    )


def load_detail(store: Store, question: Question, profiles: Sequence[SkipProfile]) -> Detail | None:
    """Return the run and profile asked for, else those of the first of `profiles`.

    Raises:
        ProblemError: 404 if what was asked for is not stored.
        StoreError: if the database cannot be read.
    """
    if question.run is not None:
        run = store.runs.get(question.run)
        if run is None:
            raise not_found("run", question.run)
        return _of_run(store, run)
    if question.profile is not None:
        profile = store.profiles.get(question.profile)
        if profile is None:
            raise not_found("profile", question.profile)
    elif profiles:
        profile = profiles[0]
    else:
        return None
    run = store.runs.get(profile.run_id)
    if run is None:
        raise not_found("run", profile.run_id)
    return _with_profile(store, _of_run(store, run), profile)


def _of_run(store: Store, run: RunRecord) -> Detail:
    search, sweep, problem = _report_of(run)
    profile = store.profiles.get(search.profile.id) if search else None
    detail = Detail(
        run=run,
        search=search,
        sweep=sweep,
        problem=problem,
        depth=_depth(store, run.id) if search else None,
        num_evaluations=store.runs.count_evaluations(run.id),
    )
    return _with_profile(store, detail, profile) if profile else detail


def _with_profile(store: Store, detail: Detail, profile: SkipProfile) -> Detail:
    assert profile.id is not None  # a stored one has its id
    return replace(
        detail,
        profile=profile,
        history=tuple(store.profiles.history(profile.id)),
        transitions=tuple(store.profiles.transitions(profile.id)),
        verifications=tuple(store.profiles.verifications(profile.id)),
    )


def _latest_runs(store: Store) -> tuple[RunRecord, ...]:
    """Searches and sweeps, newest first."""
    kinds = (SEARCH_KIND, *SWEEP_KINDS)
    found = [run for kind in kinds for run in store.runs.list(kind=kind, limit=NUM_RUNS)]
    found.sort(key=lambda run: run.created_at, reverse=True)
    return tuple(found[:NUM_RUNS])


def _report_of(run: RunRecord) -> tuple[SearchSummary | None, SweepSummary | None, str | None]:
    """The stored report of a search or of a sweep, or why there is none."""
    search = sweep = None
    if run.kind != SEARCH_KIND and run.kind not in SWEEP_KINDS:
        pages = {**dict.fromkeys(BENCHMARK_KINDS, "leaderboard"), TRAINING_KIND: "training"}
        where = f"/{pages[run.kind]}?run={run.id}" if run.kind in pages else "the REST API"
        return None, None, f"run {run.id} is of kind {run.kind!r}: its figures are at {where}"
    try:
        if run.kind == SEARCH_KIND:
            search = read_summary(run.summary)
        else:
            sweep = read_sweep(run.summary)
    except ValidationError as error:
        logger.warning("report of run %s cannot be shown: %s", run.id, error)
        problem = f"the report of run {run.id} was stored in a form that this version cannot show"
        return None, None, f"{problem}: see it at /api/v1/runs/{run.id}"
    if search is not None or sweep is not None:
        return search, sweep, None
    if run.status == "running":
        return None, None, f"run {run.id} is still going: figures appear when it ends"
    why = run.error or "no reason was stored"
    return None, None, f"run {run.id} is {run.status} and left no result: {why}"


def _depth(store: Store, run_id: str) -> Depth | None:
    """Acceptance by depth of both arms on the held-out items that the run compared."""
    keys: dict[str, dict[str, None]] = {"heldout-dense": {}, "heldout-sparse": {}}
    for role, _, row in store.runs.evaluations(run_id):
        if role in keys:
            keys[role][row.key] = None
    dense, sparse = (_counts(store, found) for found in keys.values())
    if not dense.num_hits or not sparse.num_hits:
        return None
    return Depth(
        dense.position_acceptance()[:MAX_DEPTH],
        sparse.position_acceptance()[:MAX_DEPTH],
        dense.num_hits,
        sparse.num_hits,
    )


def _counts(store: Store, keys: Iterable[str]) -> AcceptanceCounts:
    return count_acceptance(
        sample.trace for key in keys for sample in store.evaluations.samples(key)
    )


def _matches(profile: SkipProfile, question: Question) -> bool:
    names = {profile.target, profile.target_identity}
    return (
        (question.domain is None or profile.domain == question.domain)
        and (question.target is None or question.target in names)
        and (question.drafter is None or profile.drafter == question.drafter)
    )


def _choices(profiles: Iterable[SkipProfile]) -> dict[str, tuple[str, ...]]:
    found = list(profiles)
    return {
        name: tuple(sorted({getattr(profile, name) for profile in found}))
        for name in ("domain", "target", "drafter")
    }

"""What a finished search says: one record for the terminal, the flow, the store and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from db.schemas import (
    HeldoutComparison,
    Interval,
    MetricChangeKind,
    MetricName,
    NegativeControl,
    ProfileStatus,
)
from specdec_core.config.base import Record
from specdec_core.config.search import SearchConfig
from specdec_core.search.outcome import Level, Ranked, SearchOutcome
from tasks.utilisation import Utilisation

Verdict = Literal["published", "no gain", "did not hold"]


class Progress(Record):
    """How far a run is."""

    stage: Literal["level", "control", "held-out", "cells", "calibration", "data", "training"]
    done: int = Field(ge=0)
    total: int = Field(ge=0, description="known so far; grows while a search finds work")
    text: str = ""


OnProgress = Callable[[Progress], None]
"""Takes a record whenever a run has come further."""


class ConfigurationRow(Record):
    """One configuration as the search saw it on the selection items."""

    skip: str = Field(description="canonical skip set, empty for dense")
    key: str | None = Field(None, description="evaluation key; None if it was never asked for")
    level: int
    rank: int = Field(
        description="1-based place on its level, 0 for dense, dropped and failed ones"
    )
    acceptance: float | None = None
    metric: float | None = None
    gain_acceptance: float | None = Field(None, description="acceptance / dense - 1")
    gain_metric: float | None = Field(None, description="metric / dense - 1")
    gain_acceptance_interval: Interval | None = Field(
        None, description="paired by item; of the front, frontiers, answer and compared set"
    )
    gain_metric_interval: Interval | None = Field(
        None, description="the same; None where the gain is a plain difference"
    )
    is_feasible: bool = False
    violation: float | None = Field(None, description="summed shortfall below the tolerances")
    is_frontier: bool = False
    objective: float | None = Field(
        None, description="what the strategy maximises, summed; 0 for dense"
    )
    loss: float | None = Field(None, description="nats per token, where the strategy asked")
    mean_output_tokens: float | None = Field(None, description="tokens, stop token included")
    stop_rate: float | None = Field(
        None, description="share of outputs that end before the length limit"
    )
    error: str | None = Field(None, description="why it failed")
    dropped: str | None = Field(
        None, description="how far it came and could have come, where it was dropped unfinished"
    )


class LevelTable(Record):
    """Every configuration of one level, best first, then dropped ones, failed ones last."""

    number: int
    rows: tuple[ConfigurationRow, ...]


class Case(Record):
    """One held-out item answered by the dense and by the sparse target."""

    item_id: str
    verdict: Literal["better", "same", "worse"]
    prompt: str
    reference: str | None
    dense_text: str
    sparse_text: str
    dense_score: float | None
    sparse_score: float | None


class CaseCounts(Record):
    """Held-out items whose score the sparse target raised, kept and lowered."""

    better: int = 0
    same: int = 0
    worse: int = 0


class PublishedProfile(Record):
    """The profile that the search leaves active, or validated where it was told to."""

    id: int
    version: int
    skip: str
    is_dense: bool
    reason: str
    is_new: bool = Field(description="whether this run published it or found it active")
    status: ProfileStatus = "active"


class SearchCosts(Record):
    """What this run did itself and what it found in the store."""

    num_evaluated: int = Field(description="evaluations done by workers")
    num_memoised: int = Field(description="evaluations found in the store")
    num_failed: int
    worker_s: float = Field(description="seconds in workers")
    wall_s: float = Field(description="seconds of the whole run")
    utilisation: Utilisation | None = Field(None, description="None where no worker was needed")
    decoded_tokens: int = Field(0, description="output tokens of selection items, by workers")
    num_dropped: int = Field(0, description="sets dropped unfinished as they change nothing")
    saved_tokens: int = Field(
        0, description="output tokens that dropping them saved at most, all limits reached"
    )


class RandomDraws(Record):
    """What random sets of one size reached on the selection items; sd is of the sample."""

    size: int
    num_draws: int
    acceptance_mean: float
    acceptance_sd: float
    metric_mean: float | None = None
    metric_sd: float | None = None


class StepTimeSource(Record):
    """The calibration that predicted step times rest on."""

    run_id: str = Field(description="run that measured it")
    hardware: str
    context_tokens: int
    curve: tuple[tuple[int, float], ...] = Field(description="nodes per forward, median seconds")


class SearchReport(Record):
    """The result of one search; stored as the summary of its run."""

    run_id: str
    verdict: Verdict
    headline: str = Field(description="the result in one sentence")
    config: SearchConfig
    target: str
    target_identity: str
    num_layers: int
    dtype: str
    device: str
    license_note: str
    suite: str
    suite_hash: str
    selection_ids: tuple[str, ...]
    heldout_ids: tuple[str, ...]
    study: str = Field(description="name of the Optuna study")
    log_file: str
    metric_name: MetricName = "metric"
    dense: ConfigurationRow
    answer: ConfigurationRow = Field(description="best on the selection items; may be dense")
    compared: ConfigurationRow | None = Field(
        None, description="sparse configuration compared with dense on held-out items"
    )
    selection_metric_change: Interval | None = Field(
        None, description="of the compared configuration on the selection items"
    )
    selection_metric_change_kind: MetricChangeKind = "relative"
    levels: tuple[LevelTable, ...]
    ablation: tuple[ConfigurationRow, ...] = Field(description="single units, by layer")
    front: tuple[ConfigurationRow, ...]
    stop_reason: str
    num_configurations: int = Field(description="scored configurations, dense not counted")
    heldout: HeldoutComparison | None = None
    guards: tuple[str, ...] = Field((), description="signs of degenerate sparse output")
    negative_control: NegativeControl | None = Field(
        None, description="the same set in another domain; decides nothing"
    )
    cases: tuple[Case, ...] = Field((), description="a few held-out items of each verdict")
    case_counts: CaseCounts | None = Field(
        None, description="all compared held-out items by verdict; None where nothing is scored"
    )
    profile: PublishedProfile
    advice: tuple[str, ...]
    notes: tuple[str, ...] = Field((), description="what a reader must know about the figures")
    draws: tuple[RandomDraws, ...] = Field((), description="by size, of strategy random")
    step_times: StepTimeSource | None = Field(None, description="of strategy throughput")
    costs: SearchCosts


def configuration_row(member: Ranked, keys: dict[str, str]) -> ConfigurationRow:
    """Return the table row of a scored configuration; `keys` maps skip sets to keys."""
    return ConfigurationRow(
        skip=str(member.skip),
        key=keys.get(str(member.skip)),
        level=member.level,
        rank=member.rank,
        acceptance=member.score.acceptance,
        metric=member.score.metric,
        gain_acceptance=member.gain_acceptance,
        gain_metric=member.gain_metric,
        is_feasible=member.is_feasible,
        violation=member.violation,
        is_frontier=member.is_frontier,
        objective=member.gain,
    )


def draw_rows(outcome: SearchOutcome) -> tuple[RandomDraws, ...]:
    """Return the statistics of random draws, none where nothing was drawn."""
    return tuple(RandomDraws(**asdict(draws)) for draws in outcome.draws)


def level_table(
    level: Level, keys: dict[str, str], loss_keys: Mapping[str, str] = MappingProxyType({})
) -> LevelTable:
    """Return the table of one level: scored, with a loss only, dropped, then failed sets."""
    failed = [
        ConfigurationRow(
            skip=str(skip), key=keys.get(str(skip)), level=level.number, rank=0, error=reason
        )
        for skip, reason in level.failed
    ]
    losses = [
        ConfigurationRow(
            skip=str(skip),
            key=loss_keys.get(str(skip)),
            level=level.number,
            rank=place,
            loss=nats,
            is_frontier=place == 1,
        )
        for place, (skip, nats) in enumerate(level.losses, start=1)
    ]
    dropped = [
        ConfigurationRow(skip=str(skip), level=level.number, rank=0, dropped=bounds.text)
        for skip, bounds in level.dropped
    ]
    rows = [configuration_row(member, keys) for member in level.members]
    return LevelTable(number=level.number, rows=(*rows, *losses, *dropped, *failed))


def ablation_rows(outcome: SearchOutcome, keys: dict[str, str]) -> tuple[ConfigurationRow, ...]:
    """Return the single units by layer: level 1 in the order of the model."""
    members = outcome.levels[0].members if outcome.levels else ()
    ordered = sorted(members, key=lambda member: member.skip.sort_key)
    return tuple(configuration_row(member, keys) for member in ordered)


def rows_of(members: Iterable[Ranked], keys: dict[str, str]) -> tuple[ConfigurationRow, ...]:
    """Return the table rows of some configurations, in the given order."""
    return tuple(configuration_row(member, keys) for member in members)

"""What the pages read of a stored search report; fields they do not show are ignored.

The report is written by the search and kept as JSON with its run. Reading it leniently keeps
pages working on runs that older or newer code stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from db.schemas import (
    HeldoutComparison,
    Interval,
    MetricChangeKind,
    MetricName,
    NegativeControl,
)


class _View(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Configuration(_View):
    """One skip set with its selection scores; gains are relative to dense."""

    skip: str
    key: str | None = None
    level: int = 0
    rank: int = 0
    acceptance: float | None = None
    metric: float | None = None
    gain_acceptance: float | None = None
    gain_metric: float | None = None
    is_feasible: bool = False
    violation: float | None = None
    is_frontier: bool = False
    mean_output_tokens: float | None = None
    stop_rate: float | None = None
    error: str | None = None
    dropped: str | None = None

    @property
    def label(self) -> str:
        """Skip set for people."""
        return self.skip or "dense"

    @property
    def num_units(self) -> int:
        """Units skipped."""
        return self.skip.count(",") + 1 if self.skip else 0


class Level(_View):
    """Every configuration of one search level, best first."""

    number: int
    rows: tuple[Configuration, ...] = ()


class Case(_View):
    """One held-out item answered by the dense and by the sparse target."""

    item_id: str
    verdict: Literal["better", "same", "worse"]
    prompt: str
    reference: str | None = None
    dense_text: str
    sparse_text: str
    dense_score: float | None = None
    sparse_score: float | None = None


class CaseCounts(_View):
    """Held-out items by their score against dense."""

    better: int
    same: int
    worse: int


class PublishedProfile(_View):
    """The profile that was active after the search."""

    id: int
    version: int
    skip: str
    is_dense: bool
    reason: str
    is_new: bool = True


class Costs(_View):
    """What the search did itself and what it found in the store."""

    num_evaluated: int
    num_memoised: int
    num_failed: int = 0
    num_dropped: int = 0
    worker_s: float
    wall_s: float


class Parameters(_View):
    """The parameters of a search that pages name."""

    domain: str
    drafter: str
    units: str = ""
    tolerance: float
    tolerance_acceptance: float | None = None
    tolerance_metric: float | None = None

    @property
    def epsilon_acceptance(self) -> float:
        """Signed relative tolerance on acceptance."""
        return self.tolerance if self.tolerance_acceptance is None else self.tolerance_acceptance

    @property
    def epsilon_metric(self) -> float:
        """Signed relative tolerance on the task metric."""
        return self.tolerance if self.tolerance_metric is None else self.tolerance_metric


class SearchSummary(_View):
    """The result of one search."""

    verdict: Literal["published", "no gain", "did not hold"]
    headline: str
    config: Parameters
    target: str
    num_layers: int = Field(ge=1)
    dtype: str = ""
    device: str = ""
    license_note: str = ""
    suite: str = ""
    suite_hash: str = ""
    selection_ids: tuple[str, ...] = ()
    heldout_ids: tuple[str, ...] = ()
    metric_name: MetricName = "metric"
    study: str = ""
    log_file: str = ""
    dense: Configuration
    answer: Configuration
    compared: Configuration | None = None
    selection_metric_change: Interval | None = None
    selection_metric_change_kind: MetricChangeKind = "relative"
    levels: tuple[Level, ...] = ()
    ablation: tuple[Configuration, ...] = ()
    front: tuple[Configuration, ...] = ()
    stop_reason: str = ""
    heldout: HeldoutComparison | None = None
    guards: tuple[str, ...] = ()
    negative_control: NegativeControl | None = None
    cases: tuple[Case, ...] = ()
    case_counts: CaseCounts | None = None
    profile: PublishedProfile
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    costs: Costs | None = None

    @property
    def has_metric(self) -> bool:
        """Whether quality was looked at: by the task metric, or agreement with dense."""
        return self.dense.metric is not None

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Every configuration of every level, failed ones included."""
        return tuple(row for level in self.levels for row in level.rows)

    @property
    def compared_label(self) -> str:
        """The skip set that the held-out figures called sparse belong to."""
        return (self.compared or self.answer).label


def read_summary(summary: Mapping[str, Any]) -> SearchSummary | None:
    """Return the search report stored with a run, None where there is none yet.

    Raises:
        ValidationError: if it is not the report of a search.
    """
    return SearchSummary.model_validate(summary) if summary else None

"""What a comparison of strategies or a sweep of tolerances says: one record for both."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from db.schemas import HeldoutComparison, MetricName
from specdec_core.config.base import Record
from specdec_core.config.search import CompareConfig, SensitivityConfig, StrategyName
from tasks.report import ConfigurationRow, RandomDraws, SearchCosts, StepTimeSource

SweepKind = Literal["tss-compare", "tss-sensitivity"]
COST_LIMIT = 1.5
"""Searches that a sweep of tolerances may cost beyond the one it starts from."""


class SweepVariant(Record):
    """One search of the sweep: its answer on selection and held-out items, and what it took."""

    name: str = Field(description="strategy, or signed tolerance in per cent")
    strategy: StrategyName
    tolerance_acceptance: float
    tolerance_metric: float
    answer: ConfigurationRow = Field(description="on the selection items; may be dense")
    sparsity: float = Field(description="share of all layers left out; a half is half a layer")
    is_within_tolerances: bool = Field(
        description="whether the answer keeps the tolerances on the selection items, even where "
        "its strategy does not ask"
    )
    stop_reason: str
    num_evaluations: int = Field(
        description="results it needs, the dense target included; parts of them where sets are "
        "dropped unfinished"
    )
    num_losses: int = Field(0, description="those of them that are losses, without decoding")
    num_evaluated: int = Field(description="evaluations that workers did for it in this run")
    num_memoised: int = Field(description="evaluations found in the store")
    num_failed: int = 0
    num_dropped: int = Field(0, description="sets dropped unfinished as they change nothing")
    heldout: HeldoutComparison | None = Field(
        None, description="dense against the answer; None for a dense answer"
    )
    holds: bool | None = Field(
        None, description="whether a profile of it could be published; None for a dense answer"
    )
    reason: str = ""
    draws: tuple[RandomDraws, ...] = ()


class SweepCost(Record):
    """What a sweep costs beyond the search that it starts from, counted in evaluations."""

    num_base: int = Field(
        description="evaluations of the search at its own tolerances, or their parts"
    )
    num_extra: int = Field(description="different evaluations that the other searches add to these")
    in_searches: float = Field(description="extra / base")
    limit: float = COST_LIMIT

    @property
    def is_within_limit(self) -> bool:
        """Whether the sweep is as cheap as it should be."""
        return self.in_searches <= self.limit


class SweepReport(Record):
    """The result of `tss-compare` or `tss-sensitivity`; stored as the summary of its run."""

    run_id: str
    kind: SweepKind
    headline: str = Field(description="the result in one sentence")
    config: CompareConfig | SensitivityConfig
    domain: str
    target: str
    target_identity: str
    num_layers: int
    dtype: str
    device: str
    suite: str
    suite_hash: str
    selection_ids: tuple[str, ...]
    heldout_ids: tuple[str, ...]
    metric_name: MetricName = "metric"
    dense: ConfigurationRow
    dense_heldout: HeldoutComparison | None = Field(
        None, description="dense against itself: its held-out figures"
    )
    variants: tuple[SweepVariant, ...]
    cost: SweepCost | None = Field(None, description="of a sweep of tolerances")
    step_times: StepTimeSource | None = None
    notes: tuple[str, ...] = ()
    log_file: str
    costs: SearchCosts

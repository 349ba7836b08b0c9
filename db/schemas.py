"""The records that the store takes and returns: frozen, validated, without torch."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NamedTuple, Self

from pydantic import AwareDatetime, Field, field_validator, model_validator

from db.clock import utc_now
from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.dtype import DType
from specdec_core.config.evaluation import PREFILL_HELP, EvaluationRequest, Prefill
from specdec_core.records import EvaluationSummary, PhaseSeconds
from specdec_core.skip import SkipConfig

RunStatus = Literal["running", "completed", "failed", "cancelled"]
ProfileStatus = Literal["candidate", "validated", "active", "retired", "rejected"]
ResultStatus = Literal["done", "failed"]
MetricChangeKind = Literal["relative", "difference"]
MetricName = Literal["metric", "agreement"]
"""The task metric of the items; agreement with the dense output where they have no reference."""
METRIC_TITLES: dict[MetricName, str] = {
    "metric": "task metric",
    "agreement": "agreement with dense",
}


class Interval(Record):
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    confidence: float = Field(0.95, gt=0.0, lt=1.0, description="coverage, in (0, 1)")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"interval [{self.low}, {self.high}] is upside down: swap the ends")
        return self


class TargetRecord(Record):
    """A target model known to the store."""

    identity: str = Field(min_length=1, description="hash of configuration, weights, tokenizer")
    reference: str = Field(description="model reference under which it was last loaded")
    kind: Literal["base", "chat"]
    architecture: str = Field("", description="model class named by the checkpoint")
    num_layers: int = Field(ge=1, description="transformer blocks")
    license_note: str = Field("", description="licence shown when the model is first used")
    created_at: AwareDatetime = Field(default_factory=utc_now)


class SuiteRecord(Record):
    """An evaluation suite known to the store."""

    content_hash: str = Field(min_length=1, description="hash of the items")
    name: str
    domain: str
    source: str = Field("", description="where it was found last: path, hub id or 'built-in'")
    num_items: int = Field(ge=1)
    created_at: AwareDatetime = Field(default_factory=utc_now)


class RunRecord(Record):
    """One run of a flow."""

    id: str
    kind: str = Field(description="flow, such as 'tss-search'")
    name: str = Field(description="deployment or domain")
    status: RunStatus
    config: dict[str, Any] = Field(description="resolved parameters, whole")
    provenance: dict[str, Any] = Field(description="commit, environment, command, data")
    summary: dict[str, Any] = Field(description="what the run found, empty until it ends")
    flow_run_id: str | None = Field(None, description="Prefect flow run")
    tracker_id: str | None = Field(None, description="MLflow parent run")
    error: str | None = None
    created_at: AwareDatetime
    updated_at: AwareDatetime


class EvaluationRow(Record):
    """What is stored about one evaluation, its samples left out."""

    key: str
    request: EvaluationRequest
    status: ResultStatus
    attempts: int = Field(ge=1, description="tries recorded, the successful one included")
    error_type: str | None = None
    error: str | None = None
    summary: EvaluationSummary | None = Field(None, description="present when done")
    phases: PhaseSeconds | None = Field(None, description="present when done")
    wall_s: float | None = Field(None, description="seconds in the worker, when done")
    peak_memory_bytes: int | None = None
    hardware: str = ""
    created_at: AwareDatetime


class RunEvaluation(NamedTuple):
    """An evaluation that a run used, as what, and at which search level."""

    role: str
    level: int | None
    row: EvaluationRow


class ProfileScores(Record):
    """Selection scores of a skip set beside the dense ones; metrics in [0, 1]."""

    acceptance_length: float = Field(description="committed tokens per verify step, pooled")
    metric: float | None = None
    dense_acceptance_length: float = Field(description="the same for the dense target")
    dense_metric: float | None = None
    metric_name: MetricName = "metric"


class HeldoutComparison(Record):
    """Dense against sparse on items that the search has not seen, paired by item."""

    num_items: int = Field(ge=1)
    acceptance_dense: float = Field(description="committed tokens per verify step, pooled")
    acceptance_sparse: float
    acceptance_change: Interval = Field(description="relative: sparse / dense - 1")
    metric_dense: float | None = None
    metric_sparse: float | None = None
    metric_change: Interval | None = Field(None, description="as `metric_change_kind` says")
    metric_change_kind: MetricChangeKind = Field(
        "relative",
        description="'relative': sparse / dense - 1; 'difference': sparse - dense, where the dense "
        "metric is too close to 0 for a ratio",
    )
    metric_name: MetricName = "metric"
    tokens_per_s_dense: float
    tokens_per_s_sparse: float
    speedup: Interval = Field(description="sparse over dense, ratio of totals, same drafter")
    speedup_over_autoregressive: Interval | None = Field(
        None, description="sparse with drafter over dense without one"
    )
    useful_tokens_per_s_dense: float | None = Field(
        None, description="tokens after the first up to the end of the answer / decode seconds"
    )
    useful_tokens_per_s_sparse: float | None = None
    useful_speedup: Interval | None = Field(None, description="ratio of the two, sparse over dense")
    memory_dense_bytes: float | None = Field(
        None, description="weights and full cache of a request at its end, mean over requests"
    )
    memory_sparse_bytes: float | None = None
    memory_change: Interval | None = Field(None, description="relative: sparse / dense - 1")
    guards_dense: dict[str, float] = Field(description="degeneration guards by name")
    guards_sparse: dict[str, float]


ControlVerdict = Literal["harmed", "not harmed", "undecided"]


class NegativeControl(Record):
    """Dense against a skip set in a domain that it was not searched for, paired by item.

    It decides nothing about a profile, which answers for its own domain only.
    """

    domain: str
    suite: str
    suite_hash: str
    skip: str = Field(description="canonical skip set")
    item_ids: tuple[str, ...] = Field(min_length=1, description="items that both answered")
    acceptance_dense: float = Field(description="committed tokens per verify step, pooled")
    acceptance_sparse: float
    acceptance_change: Interval = Field(description="relative: sparse / dense - 1")
    metric_dense: float | None = None
    metric_sparse: float | None = None
    metric_change: Interval | None = Field(None, description="as `metric_change_kind` says")
    metric_change_kind: MetricChangeKind = "relative"
    metric_name: MetricName = "metric"
    same_beginning: Interval = Field(
        description="share of the dense output's tokens that the sparse one repeats from the start"
    )
    guards: tuple[str, ...] = Field((), description="signs of degenerate sparse output")
    verdict: ControlVerdict
    reason: str = Field(description="what decided the verdict, one sentence")

    @model_validator(mode="before")
    @classmethod
    def _earlier_name(cls, given: Any) -> Any:
        """Read reports that were stored when `same_beginning` had the name of another measure."""
        if not isinstance(given, dict) or "agreement" not in given:
            return given
        renamed = {**given, "same_beginning": given["agreement"]}
        return {name: value for name, value in renamed.items() if name != "agreement"}


class ProfileKey(Record):
    """What a skip profile is for; at most one version per key is active."""

    target: str = Field(min_length=1, description="model reference, canonical text")
    target_identity: str = Field(min_length=1)
    domain: str = Field(min_length=1)
    drafter: str = Field(description="canonical drafter text")
    dtype: DType

    @field_validator("drafter")
    @classmethod
    def _canonical_drafter(cls, text: str) -> str:
        return format_drafter(parse_drafter(text))


class SkipProfile(ProfileKey):
    """One version of what to skip for a key, and the evidence for it."""

    id: int | None = Field(None, description="given by the store")
    version: int | None = Field(None, description="1, 2, ... per key, given by the store")
    num_layers: int = Field(ge=1)
    skip: str = Field(description="canonical skip set, empty for dense")
    prefill: Prefill = Field("sparse", description=PREFILL_HELP)
    status: ProfileStatus = Field(
        description="candidate -> validated -> active -> retired, or rejected; see `db.lifecycle`"
    )
    is_dense: bool = Field(description="no gain was found: the dense target is the answer")
    run_id: str
    suite_hash: str
    template_hash: str
    hardware: str = Field("", description="where the held-out seconds were measured")
    selection: ProfileScores
    heldout: HeldoutComparison | None = None
    tolerance_acceptance: float = Field(description="signed relative slack; negative is looser")
    tolerance_metric: float
    reason: str = Field(description="why it was published with this status, one sentence")
    created_at: AwareDatetime = Field(default_factory=utc_now)

    @model_validator(mode="after")
    def _skip_fits(self) -> Self:
        skip = SkipConfig.parse(self.skip)
        skip.validate(self.num_layers)
        if str(skip) != self.skip:
            raise ValueError(f"skip set {self.skip!r} is not canonical: write {str(skip)!r}")
        if self.is_dense != (not self.skip):
            raise ValueError(
                f"is_dense is {self.is_dense} but the skip set is {skip.label!r}: "
                "is_dense is true exactly where nothing is skipped"
            )
        return self


class ClosestProfile(Record):
    """An active profile near to a question, and the fields in which it differs."""

    key: ProfileKey
    profile_id: int
    differs: tuple[str, ...]


class StepTime(Record):
    """Seconds of one target forward over `num_nodes` new tokens per sequence."""

    num_nodes: int = Field(ge=1)
    median_s: float = Field(gt=0.0)
    seconds: tuple[float, ...] = Field((), description="every repeat, warm-up left out")


class LayerStatistics(Record):
    """What the halves of one transformer block change."""

    layer: int = Field(ge=0, description="0-based block")
    attention_similarity: float | None = Field(
        None, description="mean cosine of the residual stream before and after the attention half"
    )
    mlp_similarity: float | None = Field(None, description="the same for the MLP half")


class CalibrationRecord(Record):
    """The measured step-time curve and layer statistics of one target on one hardware."""

    target: str
    target_identity: str
    dtype: DType
    hardware: str = Field(min_length=1, description="processor or accelerator, threads")
    skip: str = Field("", description="canonical skip set, empty for dense")
    context_tokens: int = Field(ge=0, description="committed tokens in the cache when timed")
    curve: tuple[StepTime, ...] = Field(min_length=1)
    layers: tuple[LayerStatistics, ...] = ()
    run_id: str | None = None
    created_at: AwareDatetime = Field(default_factory=utc_now)


class Baseline(Record):
    """A name that points to the benchmark run others are compared with."""

    name: str = Field(min_length=1)
    run_id: str
    reason: str = Field("", description="why this run became the baseline")
    created_at: datetime = Field(default_factory=utc_now)

"""Dense against sparse on held-out items: paired, at batch 1, drift cancelled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from db.schemas import HeldoutComparison, Interval, MetricChangeKind, MetricName
from db.store import Store
from specdec_core.bench.agreement import agreement
from specdec_core.bench.statistics import (
    RequestTimes,
    difference_of_means,
    relative_change_of_means,
    relative_change_of_pooled_ratios,
    speedup_interval,
)
from specdec_core.config.evaluation import EvaluationRequest, Prefill
from specdec_core.data.guards import GuardValues, degeneration_warnings, guard_values
from specdec_core.data.records import Suite
from specdec_core.errors import MeasurementError
from specdec_core.records import SampleResult
from specdec_core.search.ranking import SMALL_METRIC
from tasks.cases import count_cases, qualitative_cases
from tasks.heldout_costs import memory_figures, memory_of, to_interval, useful_figures
from tasks.prepare import Workload
from tasks.report import Case, CaseCounts

# A turn of one arm is a few seconds: a machine's speed changes within minutes.
CHUNK_ITEMS = 2
ARMS = ("dense", "sparse", "autoregressive")


@dataclass(frozen=True, slots=True)
class HeldoutPlan:
    """The requests of a held-out comparison, chunk by chunk, in the order they are done."""

    chunks: tuple[dict[str, EvaluationRequest], ...]

    @property
    def in_order(self) -> list[tuple[str, EvaluationRequest]]:
        """Arm and request; every second chunk goes backwards, so that drift cancels."""
        ordered = []
        for number, chunk in enumerate(self.chunks):
            arms = list(chunk.items())
            ordered += arms if number % 2 == 0 else arms[::-1]
        return ordered


@dataclass(frozen=True, slots=True)
class Heldout:
    """What the held-out items say."""

    comparison: HeldoutComparison
    guards: tuple[str, ...]
    cases: tuple[Case, ...]
    notes: tuple[str, ...]
    case_counts: CaseCounts | None = None


def plan_heldout(
    workload: Workload,
    skip: str,
    drafter: str,
    item_ids: Sequence[str],
    max_new_tokens: int,
    *,
    prefill: Prefill = "sparse",
    repetition: str = "",
) -> HeldoutPlan:
    """Return requests that time dense, sparse and autoregressive decoding on the same items.

    Items go in chunks of a few, each chunk through all three, so that a machine that gets
    slower or faster meanwhile touches them alike; every chunk is stored on its own. A
    `repetition` of its own makes requests that the store has no answers to yet.
    """

    def request(arm: str, ids: tuple[str, ...]) -> EvaluationRequest:
        return workload.request(
            skip=skip if arm == "sparse" else "",
            prefill=prefill if arm == "sparse" else "sparse",
            drafter="none" if arm == "autoregressive" else drafter,
            item_ids=ids,
            max_new_tokens=max_new_tokens,
            is_timed=True,
            repetition=repetition,
        )

    # Where the drafter is `none` two arms are one request, done once.
    return HeldoutPlan(tuple({arm: request(arm, ids) for arm in ARMS} for ids in _chunks(item_ids)))


def compare_heldout(store: Store, plan: HeldoutPlan, suite: Suite) -> Heldout | None:
    """Return the comparison over the chunks that all three arms finished; None if there are none.

    Raises:
        MeasurementError: if the finished items cannot be compared, such as outputs of one token.
    """
    arms: dict[str, list[SampleResult]] = {arm: [] for arm in ARMS}
    memory: dict[str, list[float]] = {arm: [] for arm in ARMS}
    num_missing = 0
    for chunk in plan.chunks:
        samples = {arm: store.evaluations.samples(one.key) for arm, one in chunk.items()}
        if not all(samples.values()):
            num_missing += len(chunk["dense"].item_ids)
            continue
        for arm in ARMS:
            arms[arm] += samples[arm]
            memory[arm] += memory_of(store.evaluations.summary(chunk[arm].key), samples[arm])
    if not arms["dense"]:
        return None
    notes = [f"{num_missing} held-out items could not be evaluated"] if num_missing else []
    dense, sparse, plain = (arms[arm] for arm in ARMS)
    guards_dense, guards_sparse = guards_of(dense), guards_of(sparse)
    comparison = _comparison(dense, sparse, plain, (guards_dense, guards_sparse), notes)
    needed = memory_figures(memory["dense"], memory["sparse"])
    return Heldout(
        comparison.model_copy(update=needed),
        tuple(degeneration_warnings(guards_dense, guards_sparse)),
        qualitative_cases(dense, sparse, suite),
        tuple(notes),
        count_cases(dense, sparse),
    )


def _comparison(
    dense: list[SampleResult],
    sparse: list[SampleResult],
    plain: list[SampleResult],
    guards: tuple[GuardValues, GuardValues],
    notes: list[str],
) -> HeldoutComparison:
    columns_dense, columns_sparse = acceptance_columns(dense), acceptance_columns(sparse)
    metric = metric_change(dense, sparse)
    notes += metric.notes
    dense_times, sparse_times = _paired_times(dense, sparse)
    plain_times, sparse_against_plain = _paired_times(plain, sparse)
    return HeldoutComparison(
        num_items=len(dense),
        acceptance_dense=_ratio(*columns_dense),
        acceptance_sparse=_ratio(*columns_sparse),
        acceptance_change=to_interval(
            relative_change_of_pooled_ratios(columns_dense, columns_sparse)
        ),
        metric_dense=metric.dense,
        metric_sparse=metric.sparse,
        metric_change=metric.change,
        metric_change_kind=metric.kind,
        metric_name=metric.name,
        tokens_per_s_dense=_ratio(dense_times.tokens, dense_times.seconds),
        tokens_per_s_sparse=_ratio(sparse_times.tokens, sparse_times.seconds),
        speedup=to_interval(speedup_interval(sparse_times, dense_times)),
        speedup_over_autoregressive=to_interval(
            speedup_interval(sparse_against_plain, plain_times)
        ),
        **useful_figures(dense, sparse, notes),
        guards_dense=asdict(guards[0]),
        guards_sparse=asdict(guards[1]),
    )


@dataclass(frozen=True, slots=True)
class MetricChange:
    """Mean scores of both sides and how they differ; empty where nothing was compared."""

    dense: float | None = None
    sparse: float | None = None
    change: Interval | None = None
    kind: MetricChangeKind = "relative"
    name: MetricName = "metric"
    notes: tuple[str, ...] = ()


def metric_change(dense: Sequence[SampleResult], sparse: Sequence[SampleResult]) -> MetricChange:
    """Return mean scores of both and the relative change; the plain difference near zero.

    Where no item has a score both are agreements with the dense output, so that dense has 1.
    """
    pairs = [
        (one.score, other.score)
        for one, other in zip(dense, sparse, strict=True)
        if one.score is not None and other.score is not None
    ]
    name: MetricName = "metric"
    if not pairs:
        name = "agreement"
        outputs = [(a.token_ids, b.token_ids) for a, b in zip(dense, sparse, strict=True)]
        pairs = [(1.0, agreement(*ids)) for ids in outputs]
    before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    means = sum(before) / len(pairs), sum(after) / len(pairs)
    notes = ["the change of the metric is an absolute difference"]
    if means[0] >= SMALL_METRIC:
        try:
            change = to_interval(relative_change_of_means(before, after))
            return MetricChange(*means, change, name=name)
        except MeasurementError:
            notes.insert(0, "the dense metric is too close to 0 here for a relative interval")
    change = to_interval(difference_of_means(before, after))
    return MetricChange(*means, change, "difference", name, tuple(notes))


def guards_of(samples: Sequence[SampleResult]) -> GuardValues:
    """Return the degeneration guards of some outputs."""
    return guard_values([s.token_ids for s in samples], [s.finish_reason for s in samples])


def acceptance_columns(samples: Sequence[SampleResult]) -> tuple[list[float], list[float]]:
    """Committed tokens and verify steps of each sample."""
    committed = [float(sum(sample.trace.committed)) for sample in samples]
    return committed, [float(len(sample.trace.committed)) for sample in samples]


def _paired_times(
    one: Sequence[SampleResult], other: Sequence[SampleResult]
) -> tuple[RequestTimes, RequestTimes]:
    """Tokens after the first and decode seconds, of items where both decoded at least one."""
    usable = [
        (a, b)
        for a, b in zip(one, other, strict=True)
        if len(a.token_ids) > 1 and len(b.token_ids) > 1 and a.seconds and b.seconds
    ]
    if not usable:
        raise MeasurementError(
            "no held-out item has timed output of two tokens on both sides: raise max_new_tokens"
        )
    return _times([a for a, _ in usable]), _times([b for _, b in usable])


def _times(samples: Sequence[SampleResult]) -> RequestTimes:
    return RequestTimes(
        [float(len(sample.token_ids) - 1) for sample in samples],
        [sample.seconds or 0.0 for sample in samples],
    )


def _ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    return math.fsum(numerators) / math.fsum(denominators)


def _chunks(item_ids: Sequence[str]) -> list[tuple[str, ...]]:
    return [
        tuple(item_ids[start : start + CHUNK_ITEMS])
        for start in range(0, len(item_ids), CHUNK_ITEMS)
    ]

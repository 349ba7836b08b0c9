"""Negative control: what a skip set does in a domain that it was not searched for.

Both sides answer held-out items of the second domain at batch 1 with the same drafter. Only their
outputs and counts are compared, so nothing is timed and the evaluations may run beside others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from db.schemas import ControlVerdict, Interval, NegativeControl
from db.store import Store
from specdec_core.bench.statistics import pooled_ratio, relative_change_of_pooled_ratios
from specdec_core.config.domains import DOMAINS, check_domain, search_defaults
from specdec_core.config.evaluation import EvaluationRequest, Prefill
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.data.guards import degeneration_warnings
from specdec_core.data.split import MIN_HELDOUT, split
from specdec_core.errors import DataError
from specdec_core.records import SampleResult
from specdec_core.search.ranking import SMALL_METRIC
from tasks.heldout import (
    MetricChange,
    acceptance_columns,
    guards_of,
    metric_change,
)
from tasks.heldout_costs import to_interval
from tasks.prepare import Preparer, Workload

# What a killed run has to decode again at most.
_ITEMS_PER_REQUEST = 8


@dataclass(frozen=True, slots=True)
class ControlPlan:
    """The second domain with its items, everything checked."""

    workload: Workload
    item_ids: tuple[str, ...]
    drafter: str
    max_new_tokens: int
    prefill: Prefill

    def requests(self, skip: str) -> list[EvaluationRequest]:
        """Return the requests that answer the items with `skip`, a few items each."""
        return [
            self.workload.request(
                skip=skip,
                prefill=self.prefill,
                drafter=self.drafter,
                item_ids=self.item_ids[start : start + _ITEMS_PER_REQUEST],
                max_new_tokens=self.max_new_tokens,
            )
            for start in range(0, len(self.item_ids), _ITEMS_PER_REQUEST)
        ]


def plan_control(
    config: SearchConfig, settings: Settings, prepare_workload: Preparer
) -> ControlPlan | None:
    """Resolve the negative control of a search before any model is loaded; None for none.

    Its items are those that a search of that domain would hold out by default.

    Raises:
        ConfigError: if its domain is unknown, or its suite cannot be used.
        DataError: if the suite is too small.
    """
    domain, suite = config.control_domain, config.control_suite
    if domain is None:
        return None
    check_domain(domain, suite)
    workload = prepare_workload(config.target, domain, suite, config.dtype, settings)
    usual = search_defaults(domain) if domain in DOMAINS else {}
    num_selection = usual.get("num_selection", SearchConfig.model_fields["num_selection"].default)
    try:
        drawn = split(workload.suite, num_selection, config.num_control, seed=config.seed)
    except DataError as error:
        raise DataError(
            f"control {config.control!r} is too small: a search of that domain would take "
            f"{num_selection} of its items, and at least {MIN_HELDOUT} others are needed; give a "
            "larger suite, or control 'none'"
        ) from error
    ids, drafter, limit = drawn.heldout_ids, config.drafter, config.max_new_tokens
    return ControlPlan(workload, ids, drafter, limit, config.prefill)


def compare_control(
    store: Store, plan: ControlPlan, skip: str, epsilon_metric: float
) -> NegativeControl | None:
    """Return what `skip` does to the items that both sides answered; None if there are none.

    Args:
        store: Where the answers are.
        plan: The second domain.
        skip: Canonical skip set.
        epsilon_metric: Tolerance of the search on the metric; a demanded gain counts as 0 here.

    Raises:
        MeasurementError: if the items cannot be compared, such as outputs of one token.
    """
    dense: list[SampleResult] = []
    sparse: list[SampleResult] = []
    for one, other in zip(plan.requests(""), plan.requests(skip), strict=True):
        pair = store.evaluations.samples(one.key), store.evaluations.samples(other.key)
        if all(pair):
            dense += pair[0]
            sparse += pair[1]
    if not dense:
        return None
    before, after = acceptance_columns(dense), acceptance_columns(sparse)
    acceptance = relative_change_of_pooled_ratios(before, after)
    metric = metric_change(dense, sparse)
    guards = tuple(degeneration_warnings(guards_of(dense), guards_of(sparse)))
    verdict, reason = control_verdict(metric, guards, min(epsilon_metric, 0.0))
    return NegativeControl(
        domain=plan.workload.suite.domain,
        suite=plan.workload.suite.name,
        suite_hash=plan.workload.suite.content_hash,
        skip=skip,
        item_ids=tuple(sample.item_id for sample in dense),
        acceptance_dense=sum(before[0]) / sum(before[1]),
        acceptance_sparse=sum(after[0]) / sum(after[1]),
        acceptance_change=to_interval(acceptance),
        metric_dense=metric.dense,
        metric_sparse=metric.sparse,
        metric_change=metric.change,
        metric_change_kind=metric.kind,
        metric_name=metric.name,
        same_beginning=same_beginning(dense, sparse),
        guards=guards,
        verdict=verdict,
        reason=reason,
    )


def same_beginning(dense: Sequence[SampleResult], sparse: Sequence[SampleResult]) -> Interval:
    """Return the share of the dense outputs' tokens that come before the first difference."""
    repeated = [
        float(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*ids, strict=False))))
        for ids in ((a.token_ids, b.token_ids) for a, b in zip(dense, sparse, strict=True))
    ]
    return to_interval(pooled_ratio(repeated, [float(len(one.token_ids)) for one in dense]))


def control_verdict(
    metric: MetricChange, guards: Sequence[str], limit: float
) -> tuple[ControlVerdict, str]:
    """Return whether the other domain is harmed, and why; intervals decide, not estimates.

    Args:
        metric: Change of its task metric, or agreement with dense where it has none.
        guards: Signs of degenerate output.
        limit: Change of the metric below which it is harmed, at most 0.
    """
    if guards:
        return "harmed", f"its outputs degenerate: {guards[0]}"
    assert metric.change is not None  # both sides answered something
    assert metric.dense is not None
    if metric.dense < SMALL_METRIC:
        return "undecided", "the dense target scores next to nothing there, so nothing can be lost"
    form = "+.1%" if metric.kind == "relative" else "+.4f"
    ends = f"{metric.change.low:{form}} to {metric.change.high:{form}}"
    if metric.change.high < limit:
        return "harmed", f"its {metric.name} changes by {ends}, all below {limit:{form}}"
    if metric.change.low >= limit:
        return "not harmed", f"its {metric.name} changes by {ends}, none of it below {limit:{form}}"
    sides = f"which is on both sides of {limit:{form}}"
    return "undecided", f"its {metric.name} changes by {ends}, {sides}"

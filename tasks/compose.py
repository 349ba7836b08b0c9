"""Turn the evidence of a finished search into its report, and publish the profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from db.schemas import NegativeControl
from db.store import Store
from specdec_core.errors import MeasurementError
from specdec_core.search.advice import SearchContext, advice
from specdec_core.search.outcome import Ranked, SearchOutcome
from tasks.agreement import AGREEMENT_NOTE
from tasks.control import compare_control
from tasks.driver import compared_member
from tasks.heldout import Heldout, HeldoutPlan, MetricChange, compare_heldout, metric_change
from tasks.plan import Plan
from tasks.publish import Decision, decide, publish
from tasks.report import (
    PublishedProfile,
    SearchCosts,
    SearchReport,
    StepTimeSource,
    ablation_rows,
    configuration_row,
    draw_rows,
    level_table,
    rows_of,
)
from tasks.row_outputs import with_intervals, with_outputs


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything a search did and found."""

    plan: Plan
    run_id: str
    outcome: SearchOutcome
    keys: Mapping[str, str]
    """Evaluation key by skip set, selection items."""
    heldout: HeldoutPlan | None
    study: str
    log_file: str
    costs: SearchCosts
    loss_keys: Mapping[str, str] = field(default_factory=dict)
    """The same for evaluations of the loss alone."""
    step_times: StepTimeSource | None = None


def compose_report(store: Store, evidence: Evidence) -> SearchReport:
    """Compare on held-out items, decide, publish, and return the whole report."""
    plan, outcome = evidence.plan, evidence.outcome
    compared = compared_member(outcome)
    change = _selection_change(store, evidence, compared)
    heldout, notes = _heldout(store, evidence)
    control, control_notes = _control(store, plan, compared)
    decision = decide(outcome, heldout, plan.config)
    profile = publish(
        store,
        plan.workload,
        plan.config,
        evidence.run_id,
        outcome=outcome,
        heldout=heldout,
        decision=decision,
        hardware=_hardware(store, evidence),
    )
    target, suite, keys = plan.workload.target, plan.workload.suite, dict(evidence.keys)
    report = SearchReport(
        run_id=evidence.run_id,
        verdict=decision.verdict,
        headline=_headline(plan, decision, profile),
        config=plan.config,
        target=target.reference,
        target_identity=target.identity,
        num_layers=target.num_layers,
        dtype=target.dtype,
        device=target.device,
        license_note=target.license_note,
        suite=suite.name,
        suite_hash=suite.content_hash,
        selection_ids=plan.split.selection_ids,
        heldout_ids=plan.split.heldout_ids,
        study=evidence.study,
        log_file=evidence.log_file,
        metric_name=plan.metric_name,
        dense=configuration_row(outcome.dense, keys),
        answer=configuration_row(outcome.answer, keys),
        compared=configuration_row(compared, keys) if compared else None,
        selection_metric_change=change.change,
        selection_metric_change_kind=change.kind,
        levels=tuple(level_table(one, keys, evidence.loss_keys) for one in outcome.levels),
        ablation=ablation_rows(outcome, keys),
        front=rows_of(outcome.front, keys),
        stop_reason=outcome.stop_reason,
        num_configurations=outcome.evaluated,
        heldout=heldout.comparison if heldout else None,
        guards=heldout.guards if heldout else (),
        negative_control=control,
        cases=heldout.cases if heldout else (),
        case_counts=heldout.case_counts if heldout else None,
        profile=profile,
        advice=advice(outcome, _context(plan, change)),
        notes=(*notes, *control_notes),
        draws=draw_rows(outcome),
        step_times=evidence.step_times,
        costs=evidence.costs,
    )
    return with_intervals(store, with_outputs(store, report))


def _headline(plan: Plan, decision: Decision, profile: PublishedProfile) -> str:
    if profile.status == "active":
        state = "published" if decision.is_sparse else "the dense profile is active"
    else:
        state = "validated, nothing was activated"
    return f"{plan.config.domain} on {plan.workload.target.reference}: {decision.reason} ({state})"


def _heldout(store: Store, evidence: Evidence) -> tuple[Heldout | None, tuple[str, ...]]:
    """The comparison, and what a reader must know about it."""
    notes = []
    if evidence.outcome.dropped:
        notes.append(
            f"{len(evidence.outcome.dropped)} sets were dropped unfinished, as it was certain that "
            "they change neither frontier, front nor answer: their rows are bounds, and near "
            "misses and single units speak of finished sets alone"
        )
    if evidence.plan.metric_name == "agreement":
        notes.append(AGREEMENT_NOTE)
    if evidence.plan.split.num_unscored:
        notes.append(f"{evidence.plan.split.num_unscored} items without reference were left out")
    if evidence.heldout is None:
        return None, (*notes, "nothing sparse could be scored, so nothing was compared")
    try:
        found = compare_heldout(store, evidence.heldout, evidence.plan.workload.suite)
    except MeasurementError as error:
        return None, (*notes, f"held-out items cannot be compared: {error}")
    if found is None:
        return None, (*notes, "no held-out item could be evaluated by all three methods")
    return found, (*notes, *found.notes)


def _control(
    store: Store, plan: Plan, compared: Ranked | None
) -> tuple[NegativeControl | None, tuple[str, ...]]:
    """What the compared set does in the second domain, and the note on it."""
    if plan.control is None or compared is None:
        return None, ()
    label, domain = str(compared.skip), plan.control.workload.suite.domain
    try:
        found = compare_control(store, plan.control, label, control_tolerance(plan))
    except MeasurementError as error:
        return None, (f"negative control {domain}: its items cannot be compared: {error}",)
    if found is None:
        return None, (f"negative control {domain}: no item could be answered by both sides",)
    return found, (f"negative control: {domain} is {found.verdict} by {label}: {found.reason}",)


def control_tolerance(plan: Plan) -> float:
    """The search's tolerance on the metric; one on agreement says nothing about other metrics."""
    config = plan.config
    return config.epsilon_metric if plan.metric_name == "metric" else config.tolerance


def _selection_change(store: Store, evidence: Evidence, compared: Ranked | None) -> MetricChange:
    """Return the metric change on the selection items, empty where nothing was compared."""
    if compared is None:
        return MetricChange()
    dense = store.evaluations.samples(evidence.keys[""])
    sparse = store.evaluations.samples(evidence.keys[str(compared.skip)])
    return metric_change(dense, sparse)


def _hardware(store: Store, evidence: Evidence) -> str:
    """Where the held-out seconds were measured."""
    if evidence.heldout is None:
        return ""
    row = store.evaluations.row(evidence.heldout.chunks[0]["dense"].key)
    return row.hardware if row else ""


def _context(plan: Plan, measured: MetricChange) -> SearchContext:
    config = plan.config
    # Tolerances are relative: a plain difference cannot be held against them.
    change = measured.change if measured.kind == "relative" else None
    return SearchContext(
        epsilon_acceptance=config.epsilon_acceptance,
        epsilon_metric=config.epsilon_metric,
        strategy=config.strategy,
        units=config.units,
        beam=config.beam,
        depth=config.depth,
        num_candidates=len(plan.units),
        num_selection=config.num_selection,
        num_available=len(plan.workload.suite.items),
        metric_interval=(change.low, change.high) if change else None,
        metric_name=plan.metric_name,
    )

"""Turn the searches of a sweep into its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from db.store import Store
from specdec_core.config.search import CompareConfig, SensitivityConfig
from specdec_core.errors import MeasurementError
from specdec_core.search.objectives import Tolerances
from specdec_core.search.outcome import SearchOutcome
from tasks.agreement import AGREEMENT_NOTE
from tasks.driver import SearchDriver
from tasks.heldout import Heldout, HeldoutPlan, compare_heldout
from tasks.publish import judge
from tasks.report import SearchCosts, StepTimeSource, configuration_row, draw_rows
from tasks.sweep_report import SweepCost, SweepKind, SweepReport, SweepVariant


@dataclass(frozen=True, slots=True)
class Searched:
    """One finished search of a sweep and what it took in this run."""

    name: str
    driver: SearchDriver
    outcome: SearchOutcome
    num_evaluated: int
    num_memoised: int
    num_failed: int

    @property
    def keys(self) -> frozenset[str]:
        """Every evaluation that it needs."""
        return self.driver.needed_keys


def compose_sweep(
    store: Store,
    *,
    kind: SweepKind,
    config: CompareConfig | SensitivityConfig,
    searched: Sequence[Searched],
    heldout: Mapping[str, HeldoutPlan],
    step_times: StepTimeSource | None,
    run_id: str,
    log_file: str,
    costs: SearchCosts,
) -> SweepReport:
    """Return the report; `heldout` maps skip sets to their comparisons with dense."""
    plan = searched[0].driver.plan
    found_notes = [AGREEMENT_NOTE] if plan.metric_name == "agreement" else []
    compared: dict[str, Heldout] = {}
    for skip, each in heldout.items():
        try:
            found = compare_heldout(store, each, plan.workload.suite)
        except MeasurementError as error:
            found = None
            found_notes.append(f"{skip or 'dense'} cannot be compared on held-out items: {error}")
        if found is not None:
            compared[skip] = found
            found_notes += [f"{skip or 'dense'}: {note}" for note in found.notes]
    variants = tuple(_variant(one, compared) for one in searched)
    cost = _cost(searched) if isinstance(config, SensitivityConfig) else None
    target, suite = plan.workload.target, plan.workload.suite
    return SweepReport(
        run_id=run_id,
        kind=kind,
        headline=f"{plan.config.domain} on {target.reference}: {_headline(variants, cost)}",
        config=config,
        domain=plan.config.domain,
        target=target.reference,
        target_identity=target.identity,
        num_layers=target.num_layers,
        dtype=target.dtype,
        device=target.device,
        suite=suite.name,
        suite_hash=suite.content_hash,
        selection_ids=plan.split.selection_ids,
        heldout_ids=plan.split.heldout_ids,
        metric_name=plan.metric_name,
        dense=configuration_row(searched[0].outcome.dense, searched[0].driver.keys),
        dense_heldout=compared[""].comparison if "" in compared else None,
        variants=variants,
        cost=cost,
        step_times=step_times,
        notes=tuple(dict.fromkeys(found_notes)),
        log_file=log_file,
        costs=costs,
    )


def _variant(searched: Searched, compared: Mapping[str, Heldout]) -> SweepVariant:
    driver, outcome = searched.driver, searched.outcome
    plan, answer = driver.plan, outcome.answer
    config = plan.config
    violation = Tolerances(config.epsilon_acceptance, config.epsilon_metric).violation(
        answer.gain_acceptance, answer.gain_metric, has_metric=True
    )
    heldout = compared.get(str(answer.skip)) if answer.skip.units else None
    holds, reason = (None, "nothing is left out") if not answer.skip.units else (False, "")
    if heldout is not None:
        holds, reason = judge(answer.skip.label, heldout, config)
    elif answer.skip.units:
        reason = "no held-out item could be compared"
    return SweepVariant(
        name=searched.name,
        strategy=config.strategy,
        tolerance_acceptance=config.epsilon_acceptance,
        tolerance_metric=config.epsilon_metric,
        answer=configuration_row(answer, driver.keys),
        sparsity=answer.skip.sparsity(plan.workload.target.num_layers),
        is_within_tolerances=violation == 0.0,
        stop_reason=outcome.stop_reason,
        num_evaluations=len(searched.keys),
        num_losses=len(driver.loss_keys),
        num_evaluated=searched.num_evaluated,
        num_memoised=searched.num_memoised,
        num_failed=searched.num_failed,
        num_dropped=driver.drop_costs.num_dropped,
        heldout=heldout.comparison if heldout else None,
        holds=holds,
        reason=reason,
        draws=draw_rows(outcome),
    )


def _cost(searched: Sequence[Searched]) -> SweepCost:
    """Count what the sweep adds to the search at its own tolerances, whatever was stored before."""
    base = searched[0].keys
    extra = frozenset[str]().union(*(one.keys for one in searched[1:])) - base
    return SweepCost(num_base=len(base), num_extra=len(extra), in_searches=len(extra) / len(base))


def _headline(variants: Sequence[SweepVariant], cost: SweepCost | None) -> str:
    holding = [one for one in variants if one.holds and one.heldout is not None]
    text = f"{len(holding)} of {len(variants)} answers hold on held-out items"
    if holding:
        best = max(holding, key=lambda v: v.heldout.tokens_per_s_sparse if v.heldout else 0.0)
        assert best.heldout is not None
        speed = best.heldout.speedup
        text += (
            f"; fastest {best.name} {best.answer.skip}, speed x{speed.estimate:.2f} "
            f"({speed.low:.2f} to {speed.high:.2f})"
        )
    if cost is not None:
        text += f"; the sweep cost {cost.in_searches:.2f} searches beyond the first"
    return text

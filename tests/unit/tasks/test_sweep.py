"""Strategies side by side and tolerances in turn, with workers in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.store import Store
from flows.report import render
from specdec_core.config.search import (
    STRATEGIES,
    CompareConfig,
    SearchConfig,
    SensitivityConfig,
    StrategyName,
)
from specdec_core.config.settings import Settings
from specdec_core.errors import SearchCancelledError
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.evaluator import ModelEvaluatorFactory
from tasks.jobs import StopCheck
from tasks.mirrored import report_metrics
from tasks.pool import WorkerPool, pool_factory
from tasks.search import run_search
from tasks.sweep import run_sweep
from tasks.sweep_report import SweepReport
from tests.table_evaluator import Control, TableEvaluator, config, expected, workload

# The table's evaluator has no model whose steps could be timed.
NAMES: tuple[StrategyName, ...] = tuple(name for name in STRATEGIES if name != "throughput")


def sweep(
    given: CompareConfig | SensitivityConfig, settings: Settings, store: Store, control: Control
) -> SweepReport:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    return run_sweep(given, settings, store, start, prepare_workload=workload)


def comparison(**changes: object) -> CompareConfig:
    return CompareConfig(search=config(**changes), strategies=NAMES)


def refuse_pool(should_stop: StopCheck) -> WorkerPool:
    raise AssertionError("no worker may be started")


def test_every_strategy_answers_by_the_rule(
    settings: Settings, store: Store, control: Control
) -> None:
    report = sweep(comparison(), settings, store, control)
    answers = {variant.name: variant.answer.skip for variant in report.variants}
    # Gains of single blocks in acceptance and metric: 1 (-15 %, -10 %), 2 (+20 %, +4 %),
    # 3 (+10 %, +2 %), 4 (+25 %, -40 %); sets add up. Two units at most.
    assert answers["tss"] == "2,3"
    assert answers["accept-only"] == "2,4"
    assert answers["metric-only"] == "2,3"
    # Losses: 4 is the cheapest, then 4 with 1.
    assert answers["sleb"] == "1,4"
    # A layer is worth 1/6: 4 costs .40 and stays, 3 and 2 gain, and the budget of two is used up.
    assert answers["gm-skip"] == "2,3"
    assert [variant.name for variant in report.variants] == list(NAMES)
    by_name = {variant.name: variant for variant in report.variants}
    assert by_name["sleb"].num_losses == 4 + 3
    assert by_name["sleb"].num_evaluations == 4 + 3 + 2
    assert not by_name["sleb"].is_within_tolerances
    assert [draws.num_draws for draws in by_name["random"].draws] == [4, 5]
    assert by_name["tss"].sparsity == pytest.approx(2 / 6)


def test_answers_are_compared_with_dense_and_judged(
    settings: Settings, store: Store, control: Control
) -> None:
    report = sweep(comparison(), settings, store, control)
    assert report.dense_heldout is not None
    for variant in report.variants:
        assert variant.heldout is not None
        assert variant.heldout.num_items == 20
        # All share one dense measurement.
        assert variant.heldout.tokens_per_s_dense == report.dense_heldout.tokens_per_s_dense
        noise = (variant.heldout.metric_dense or 0.0) - expected("")[1]
        metric = expected(variant.answer.skip)[1] + noise
        assert variant.heldout.metric_sparse == pytest.approx(metric)
    holds = {variant.name: variant.holds for variant in report.variants}
    assert holds["tss"]
    # 4 costs 40 % of the metric, 1 and 4 together 50 %.
    assert (holds["accept-only"], holds["sleb"]) == (False, False)
    assert {name for name, each in holds.items() if each} >= {"tss", "metric-only", "gm-skip"}
    assert f"{list(holds.values()).count(True)} of 6 answers hold" in report.headline
    assert store.profiles.count() == 0  # that is what a search is for


def test_nothing_is_evaluated_twice_across_strategies_and_runs(
    settings: Settings, store: Store, control: Control
) -> None:
    report = sweep(comparison(), settings, store, control)
    keys = [key for key, _ in control.calls]
    assert len(keys) == len(set(keys))
    tss, accept_only = report.variants[0], report.variants[NAMES.index("accept-only")]
    assert tss.num_memoised == 0
    assert tss.num_evaluated == tss.num_evaluations
    # Dense and the four single blocks at least are the same sets.
    assert accept_only.num_memoised >= 5
    assert accept_only.num_evaluated + accept_only.num_memoised == accept_only.num_evaluations
    # Another run, and a search of one of the strategies, find all of it.
    again = run_sweep(comparison(), settings, store, refuse_pool, prepare_workload=workload)
    differing = {"run_id", "log_file", "costs", "variants"}
    assert again.model_dump(exclude=differing) == report.model_dump(exclude=differing)
    assert again.costs.num_evaluated == 0
    for name in NAMES:
        found = run_search(
            config(strategy=name), settings, store, refuse_pool, prepare_workload=workload
        )
        assert found.answer.skip == report.variants[NAMES.index(name)].answer.skip
        if name == "sleb":
            losses = {row.skip: row.loss for row in found.levels[0].rows}
            assert list(losses) == ["4", "1", "3", "2"]
            assert losses["4"] == pytest.approx(2.0 + 0.1)
            assert render(found)


def test_the_stored_summary_reads_back_and_has_metrics_for_the_tracker(
    settings: Settings, store: Store, control: Control
) -> None:
    report = sweep(comparison(), settings, store, control)
    run = store.runs.get(report.run_id)
    assert run is not None
    assert (run.status, run.kind, run.name) == ("completed", "tss-compare", "translation")
    assert SweepReport.model_validate(run.summary) == report
    metrics = report_metrics(run.summary)
    assert metrics["num_evaluations/tss"] == report.variants[0].num_evaluations
    heldout = report.variants[0].heldout
    assert heldout is not None
    assert metrics["heldout_speedup/tss"] == heldout.speedup.estimate
    roles = {each.role for each in store.runs.evaluations(run.id)}
    assert {"dense", "selection", "loss", "heldout-dense", "heldout-sparse"} <= roles


def test_a_killed_comparison_continues(settings: Settings, store: Store, control: Control) -> None:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    with pytest.raises(SearchCancelledError):
        run_sweep(
            comparison(),
            settings,
            store,
            start,
            should_stop=lambda: len(control.calls) >= 9,
            prepare_workload=workload,
        )
    (run,) = store.runs.list(kind="tss-compare")
    assert run.status == "cancelled"
    num_before = len(control.calls)
    sweep(comparison(), settings, store, control)
    keys = [key for key, _ in control.calls]
    assert num_before >= 9
    assert len(keys) == len(set(keys))


def test_sensitivity_counts_what_it_costs(
    settings: Settings, store: Store, control: Control
) -> None:
    given = SensitivityConfig(search=config(), tolerances=(0.05, 0.0, -0.05, -0.5))
    report = sweep(given, settings, store, control)
    assert [variant.name for variant in report.variants] == ["base", "+5%", "+0%", "-5%", "-50%"]
    base, _, _, same, loose = report.variants
    assert report.cost is not None
    assert report.cost.num_base == base.num_evaluations
    # The base is at -5 %: that row adds nothing.
    assert same.num_evaluated == 0
    assert same.answer == base.answer
    assert report.cost.num_extra == sum(v.num_evaluated for v in report.variants[1:])
    assert report.cost.in_searches == report.cost.num_extra / report.cost.num_base
    assert report.cost.is_within_limit
    # At -50 % even 4, which loses 40 % of the metric, is feasible, but 2,3 has the largest sum.
    assert loose.answer.skip == "2,3"
    # The count rests on sets, not on what was stored before.
    again = sweep(given, settings, store, control)
    assert again.cost == report.cost
    assert report_metrics(report.model_dump(mode="json"))["cost_in_searches"] is not None


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model", num_layers=4)
    return f"path:{folder}"


def test_throughput_and_sleb_on_a_real_model_calibrate_once(
    checkpoint: str, tmp_path: Path, settings: Settings, store: Store
) -> None:
    lines = [
        f'{{"id": "q{i}", "domain": "riddles", "prompt": "number {i} {i} {i}?", '
        f'"reference": "{i}", "metric": "f1", "meta": {{}}}}\n'
        for i in range(6)
    ]
    path = tmp_path / "riddles.jsonl"
    path.write_text("".join(lines))
    search = SearchConfig(
        domain="riddles",
        target=checkpoint,
        suite=str(path),
        units="halves",
        beam=1,
        depth=1,
        tolerance=-1.0,
        num_selection=2,
        num_heldout=2,
        max_new_tokens=6,
    )
    start = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True)
    given = CompareConfig(search=search, strategies=("throughput", "sleb"))
    report = run_sweep(given, settings, store, start)
    assert report.step_times is not None
    (calibration,) = store.calibrations.list()
    assert report.step_times.run_id == calibration.run_id
    throughput, sleb = report.variants
    assert throughput.num_evaluations == 1 + 4
    assert (sleb.num_losses, sleb.num_evaluations) == (4, 4 + 2)
    # The winner and dense were scored for throughput already.
    assert sleb.num_evaluated == 4
    rows = [row for row in store.evaluations.list(limit=None) if row.request.mode == "loss"]
    losses = {row.request.skip: row.summary.loss for row in rows if row.summary is not None}
    assert sleb.answer.skip == min(losses, key=lambda skip: losses[skip] or 0.0)
    # A second one finds calibration and evaluations.
    again = run_sweep(given, settings, store, refuse_pool)
    assert again.step_times == report.step_times
    assert [v.answer for v in again.variants] == [v.answer for v in report.variants]

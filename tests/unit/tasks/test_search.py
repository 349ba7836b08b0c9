"""The search driver with workers in this process: report, memo, profile, faults."""

from __future__ import annotations

import optuna
import pytest

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.records import SampleResult
from tasks.plan import plan_search
from tasks.report import SearchReport
from tasks.search import run_search
from tests.table_evaluator import Control, config, expected, workload
from tests.unit.tasks.inline_search import refuse_pool, search


def test_finds_and_publishes_the_set_that_gains(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control)
    assert report.verdict == "published"
    # 2+3: +0.6 tokens of 2.0 and +0.03 of 0.5; 4 costs 0.2 of the metric, 1 costs both.
    assert report.answer.skip == "2,3"
    assert report.answer.gain_metric == pytest.approx(0.06, abs=0.01)
    assert report.profile.skip == "2,3"
    assert report.profile.is_new
    assert store.profiles.resolve("path:/table", "translation").skip == "2,3"
    assert report.heldout is not None
    assert report.heldout.num_items == 20
    assert report.heldout.metric_change is not None
    assert report.heldout.metric_change.low > 0
    assert report.heldout.speedup.estimate > 1
    assert report.heldout.speedup_over_autoregressive is not None
    assert report.heldout.speedup_over_autoregressive.estimate > 2
    assert [row.skip for row in report.ablation] == ["1", "2", "3", "4"]
    assert {case.verdict for case in report.cases} == {"better"}
    assert report.selection_metric_change is not None
    assert set(report.selection_ids).isdisjoint(report.heldout_ids)


def test_every_row_of_the_report_agrees_with_the_rule(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control)
    noise = (report.dense.metric or 0.0) - expected("")[1]
    rows = [row for level in report.levels for row in level.rows]
    assert {row.skip for row in rows} >= {"1", "2", "3", "4", "2,3"}
    for row in rows:
        assert row.metric == pytest.approx(expected(row.skip)[1] + noise)
        assert row.key is not None
        stored = store.evaluations.summary(row.key)
        assert stored is not None
        assert stored.acceptance_length == row.acceptance


def test_the_stored_summary_reads_back_as_the_report(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control)
    run = store.runs.get(report.run_id)
    assert run is not None
    assert run.status == "completed"
    assert SearchReport.model_validate(run.summary) == report
    roles = {each.role for each in store.runs.evaluations(run.id)}
    assert roles == {
        "dense",
        "selection",
        "heldout-dense",
        "heldout-sparse",
        "heldout-autoregressive",
    }


def test_a_second_run_answers_from_the_store_without_workers(
    settings: Settings, store: Store, control: Control
) -> None:
    first = search(settings, store, control)
    num_calls = len(control.calls)
    second = run_search(config(), settings, store, refuse_pool, prepare_workload=workload)
    differing = {"run_id", "costs", "log_file", "profile"}
    assert second.model_dump(exclude=differing) == first.model_dump(exclude=differing)
    assert second.profile.id == first.profile.id
    assert not second.profile.is_new
    assert second.costs.num_evaluated == 0
    assert second.costs.num_memoised == first.costs.num_evaluated
    assert len(control.calls) == num_calls
    assert store.profiles.count() == 1


def test_a_tolerance_sweep_pays_for_new_sets_only(
    settings: Settings, store: Store, control: Control
) -> None:
    search(settings, store, control)
    search(settings, store, control, tolerance=-0.5)
    keys = [key for key, _ in control.calls]
    assert len(keys) == len(set(keys))


def test_no_gain_keeps_dense_and_shows_what_sparse_would_cost(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control, tolerance=0.9)
    assert report.verdict == "no gain"
    assert report.answer.skip == ""
    assert report.profile.is_dense
    assert report.compared is not None
    assert report.compared.skip
    assert report.heldout is not None
    assert any("tolerance of" in line for line in report.advice)
    stored = store.profiles.resolve("path:/table", "translation")
    assert stored.is_dense
    assert "no gain" in stored.reason


def test_an_answer_that_does_not_hold_is_rejected_and_dense_stays(
    settings: Settings, store: Store, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tests.table_evaluator as table

    rule = table.expected
    chosen = set(plan_search(config(), settings, workload).split.selection_ids)

    def overfitted(skip: str, *, heldout: bool = False) -> tuple[float, float]:
        acceptance, metric = rule(skip)
        return acceptance, metric - (0.2 if heldout and skip else 0.0)

    inner = table._sample

    def sample(job: EvaluationRequest, item_id: str, gap: float | None) -> SampleResult:
        monkeypatch.setattr(
            table, "expected", lambda skip: overfitted(skip, heldout=item_id not in chosen)
        )
        return inner(job, item_id, gap)

    monkeypatch.setattr(table, "_sample", sample)
    report = search(settings, store, control)
    assert report.answer.skip == "2,3"
    assert report.verdict == "did not hold"
    assert "below the tolerance of -5.0%" in report.profile.reason
    assert report.profile.is_dense
    statuses = {(p.skip, p.status) for p in store.profiles.list()}
    assert statuses == {("2,3", "rejected"), ("", "active")}


def test_the_study_has_one_complete_trial_per_configuration(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control)
    search(settings, store, control)
    study = optuna.load_study(study_name=report.study, storage=settings.resolved_optuna_url)
    labels = [trial.user_attrs["skip"] for trial in study.get_trials()]
    assert len(labels) == len(set(labels)) == report.num_configurations + 1

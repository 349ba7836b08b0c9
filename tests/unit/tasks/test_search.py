"""The search driver with workers in this process: report, memo, profile, faults."""

from __future__ import annotations

import os
import platform

import optuna
import psutil
import pytest

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, DataError, EvaluationFailedError, SearchCancelledError
from specdec_core.records import SampleResult
from tasks.jobs import StopCheck
from tasks.plan import plan_search
from tasks.pool import WorkerPool, pool_factory
from tasks.report import Progress, SearchReport
from tasks.run_rows import end_lost_runs
from tasks.search import run_search
from tests.table_evaluator import Control, TableEvaluator, config, expected, workload


def search(settings: Settings, store: Store, control: Control, **changes: object) -> SearchReport:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    return run_search(config(**changes), settings, store, start, prepare_workload=workload)


def refuse_pool(should_stop: StopCheck) -> WorkerPool:
    raise AssertionError("no worker may be started")


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


def test_a_domain_without_metric_searches_by_acceptance_and_says_so(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control, domain="chat")
    assert report.dense.metric is None
    assert report.answer.skip == "2,4"
    assert report.heldout is not None
    assert report.heldout.metric_change is None
    assert any("no metric" in note for note in report.notes)
    study = optuna.load_study(study_name=report.study, storage=settings.resolved_optuna_url)
    assert len(study.directions) == 1


def test_the_study_has_one_complete_trial_per_configuration(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control)
    search(settings, store, control)
    study = optuna.load_study(study_name=report.study, storage=settings.resolved_optuna_url)
    labels = [trial.user_attrs["skip"] for trial in study.get_trials()]
    assert len(labels) == len(set(labels)) == report.num_configurations + 1


def test_a_failing_configuration_is_tried_twice_then_excluded(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "raise").write_text("2,3")
    report = search(settings, store, control)
    assert [label for _, label in control.calls].count("2,3") == 2
    (failed,) = [row for row in report.levels[1].rows if row.error]
    assert failed.skip == "2,3"
    assert failed.error == "ValueError: 2,3 is broken"
    assert report.answer.skip == "2"
    assert failed.key is not None
    row = store.evaluations.row(failed.key)
    assert row is not None
    assert (row.status, row.attempts) == ("failed", 2)
    again = search(settings, store, control)
    assert [label for _, label in control.calls].count("2,3") == 2
    assert again.costs.num_failed == 1


def test_a_failed_configuration_can_be_tried_again_on_request(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "raise").write_text("2,3")
    search(settings, store, control)
    (control.folder / "raise").unlink()
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    report = run_search(
        config(), settings, store, start, retries_failed=True, prepare_workload=workload
    )
    assert report.answer.skip == "2,3"


def test_running_out_of_memory_is_not_repeated_identically(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "raise-memory").write_text("3")
    search(settings, store, control)
    assert [label for _, label in control.calls].count("3") == 1


def test_a_failing_dense_target_fails_the_run_with_its_reason(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "raise").write_text("dense")
    with pytest.raises(EvaluationFailedError, match="dense is broken"):
        search(settings, store, control)
    (run,) = store.runs.list()
    assert run.status == "failed"
    assert "dense is broken" in (run.error or "")


def test_a_cancelled_search_keeps_what_is_finished_and_continues(
    settings: Settings, store: Store, control: Control
) -> None:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    with pytest.raises(SearchCancelledError, match="the same command continues"):
        run_search(
            config(),
            settings,
            store,
            start,
            should_stop=lambda: len(control.calls) >= 3,
            prepare_workload=workload,
        )
    (run,) = store.runs.list()
    assert run.status == "cancelled"
    assert store.evaluations.count("done") >= 2
    report = search(settings, store, control)
    assert report.answer.skip == "2,3"
    done = [key for key, _ in control.calls]
    assert len(done) - len(set(done)) <= 1  # only the one that was in progress


def test_progress_and_log_lines_reach_the_caller(
    settings: Settings, store: Store, control: Control
) -> None:
    seen: list[Progress] = []
    lines: list[str] = []
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    report = run_search(
        config(),
        settings,
        store,
        start,
        log=lines.append,
        progress=seen.append,
        prepare_workload=workload,
    )
    assert {each.stage for each in seen} == {"level", "held-out"}
    assert all(each.done <= each.total for each in seen)
    assert seen[-1].done == seen[-1].total
    assert any("2,3 [" in line and "acceptance" in line for line in lines)
    assert lines[-1] == report.headline


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"domain": "transaltion"}, ConfigError, "did you mean 'translation'"),
        ({"num_selection": 39}, DataError, "40 usable items"),
        ({"target": "gemma"}, ConfigError, "no scheme"),
    ],
)
def test_wrong_requests_are_refused_before_anything_is_stored(
    settings: Settings,
    store: Store,
    changes: dict[str, object],
    error: type[Exception],
    text: str,
) -> None:
    from tasks.prepare import prepare

    given = config(**changes)
    preparer = prepare if "target" in changes else workload
    with pytest.raises(error, match=text):
        run_search(given, settings, store, refuse_pool, prepare_workload=preparer)
    assert store.runs.list() == []


def test_a_retried_flow_run_continues_its_row(
    settings: Settings, store: Store, control: Control
) -> None:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    for _ in range(2):
        run_search(
            config(), settings, store, start, flow_run_id="flow-1", prepare_workload=workload
        )
    assert len(store.runs.list()) == 1


def test_a_row_left_running_by_a_killed_process_is_given_an_end(
    store: Store, settings: Settings
) -> None:
    """A process id that is taken again by another process does not keep the row alive."""
    own = {"host": platform.node(), "pid": os.getpid()}
    started = psutil.Process().create_time()
    reused = store.runs.create("tss-search", "qa", {}, {**own, "process_started_at": started - 1})
    alive = store.runs.create("tss-search", "qa", {}, {**own, "process_started_at": started})
    elsewhere = store.runs.create("tss-search", "qa", {}, {**own, "host": "another", "pid": 1})
    assert end_lost_runs(store) == 1
    ended = store.runs.get(reused.id)
    assert ended is not None
    assert (ended.status, "the same command continues" in (ended.error or "")) == ("failed", True)
    for run in (alive, elsewhere):
        kept = store.runs.get(run.id)
        assert kept is not None
        assert kept.status == "running"

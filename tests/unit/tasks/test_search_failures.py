"""What a search does where evaluations, processes or requests fail."""

from __future__ import annotations

import os
import platform

import optuna
import psutil
import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, DataError, EvaluationFailedError, SearchCancelledError
from tasks.pool import pool_factory
from tasks.report import Progress
from tasks.run_rows import end_lost_runs
from tasks.search import run_search
from tests.table_evaluator import Control, TableEvaluator, config, workload
from tests.unit.tasks.inline_search import refuse_pool, search


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


def test_a_loss_that_is_no_number_is_recorded_and_left_out(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "nan-loss").write_text("4")  # the cheapest one
    report = search(settings, store, control, strategy="sleb")
    (failed,) = [row for row in report.levels[0].rows if row.error]
    assert failed.skip == "4"
    assert "loss is not a finite number" in (failed.error or "")
    # Of the others 1 costs least, and 4 beside it.
    assert report.answer.skip == "1,4"
    trials = optuna.load_study(
        study_name=report.study, storage=settings.resolved_optuna_url
    ).get_trials()
    single = {t.user_attrs["skip"]: t for t in trials if t.user_attrs["level"] == 1}
    states = {skip: trial.state.name for skip, trial in single.items()}
    assert states == {"1": "PRUNED", "2": "PRUNED", "3": "PRUNED", "4": "FAIL"}
    nats = {skip: trial.user_attrs["loss"] for skip, trial in single.items() if skip != "4"}
    assert min(nats, key=nats.get) == "1"


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

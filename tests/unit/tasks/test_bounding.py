"""A search in parts: the same report as the whole search, with fewer items, whatever happens."""

from __future__ import annotations

import itertools
import random

import optuna
import pytest
from optuna.trial import TrialState

from db.store import Store
from flows.report import facts, level_tables
from specdec_core.config.search import CompareConfig, SearchConfig, SensitivityConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.search.space import evaluation_bound
from tasks.jobs import Completed, StopCheck
from tasks.parted import partial_counts
from tasks.plan import plan_search
from tasks.pool import InlinePool, WorkerPool, pool_factory
from tasks.report import SearchReport
from tasks.search import run_search
from tasks.sweep import plan_sweep, run_sweep
from tests.table_evaluator import Control, TableEvaluator, config, workload
from tests.unit.tasks.inline_search import refuse_pool, search

# 25 tokens are what every output of the table has, so that bounds on acceptance are near.
NARROW = {"max_new_tokens": 25, "num_selection": 8, "depth": 3}


def bounded(settings: Settings, store: Store, control: Control, **changes: object) -> SearchReport:
    return search(settings, store, control, **{**NARROW, "batch_size": 2, "bound": True, **changes})


def whole_twin(settings: Settings, control: Control, **changes: object) -> SearchReport:
    """The same search without dropping, in a store of its own."""
    with Store.open(f"sqlite:///{control.folder}/twin.db") as other:
        return search(settings, other, control, **{**NARROW, "batch_size": 2, **changes})


def found(report: SearchReport) -> object:
    """What must not depend on dropping, held-out comparison and profile included."""
    return (
        report.verdict,
        report.answer.skip,
        report.answer.acceptance,
        report.answer.metric,
        {row.skip for row in report.front},
        [[r.skip for r in level.rows if r.is_frontier] for level in report.levels[:-1]],
        [{row.skip for row in level.rows} for level in report.levels],
        report.stop_reason,
        report.compared.skip if report.compared else None,
        report.profile.skip,
        report.heldout.metric_change if report.heldout else None,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 1},
        {"batch_size": 3, "tolerance": 0.05},
        {"batch_size": 1, "tolerance": -0.5},
        {"tolerance": 0.9},
        {"batch_size": 1, "strategy": "accept-only", "depth": 2},
    ],
    ids=str,
)
def test_dropping_changes_nothing_in_the_report(
    settings: Settings, store: Store, control: Control, changes: dict[str, object]
) -> None:
    report = bounded(settings, store, control, **changes)
    assert found(report) == found(whole_twin(settings, control, **changes))


def test_dropped_sets_are_shown_and_counted(
    settings: Settings, store: Store, control: Control
) -> None:
    report = bounded(settings, store, control, batch_size=1)
    rows = [row for level in report.levels for row in level.rows if row.dropped]
    # Leaving out 4 costs 0.2 of the metric. The items' own noise puts dense at 0.5054 and the
    # tolerance at 0.4801. With 6 of 8 items at 0.3, the mean is at most about 3.8 / 8 = 0.475; with
    # 5 it could still be 4.5 / 8 = 0.5625.
    (row,) = [row for row in rows if row.skip == "4"]
    assert row.dropped is not None
    assert row.dropped.startswith("after 6 of 8 items, at most acceptance")
    assert (row.rank, row.acceptance, row.error) == (0, None, None)
    assert report.costs.num_dropped == len(rows)
    assert report.costs.saved_tokens >= 25 * len(rows)
    assert report.num_configurations == sum(
        row.acceptance is not None for level in report.levels for row in level.rows
    )
    # Every output has 25 tokens.
    num_parts = sum(each.role == "part" for each in store.runs.evaluations(report.run_id))
    assert report.costs.decoded_tokens == 25 * num_parts
    assert any("dropped unfinished" in note for note in report.notes)
    assert "dropped after 6 of 8 items" in level_tables(report)[0].to_markdown()
    assert any("sets dropped unfinished" in value for _, value in facts(report))


def test_a_finished_set_is_stored_as_if_it_had_been_evaluated_at_once(
    settings: Settings, store: Store, control: Control
) -> None:
    report = bounded(settings, store, control)
    assert report.answer.key is not None
    stored = store.evaluations.get(report.answer.key)
    with Store.open(f"sqlite:///{control.folder}/twin.db") as other:
        twin = search(settings, other, control, **NARROW, batch_size=2)
        assert twin.answer.key == report.answer.key
        expected = other.evaluations.get(report.answer.key)
    assert stored is not None
    assert expected is not None
    assert stored.samples == expected.samples
    measured = {"tokens_per_s", "prefill_s", "decode_s"}
    assert stored.summary.model_dump(exclude=measured) == expected.summary.model_dump(
        exclude=measured
    )
    counts = partial_counts(stored.summary)
    assert counts.num_committed == sum(sum(s.trace.committed) for s in stored.samples)


def test_a_second_run_evaluates_nothing(settings: Settings, store: Store, control: Control) -> None:
    first = bounded(settings, store, control)
    given = config(**NARROW, batch_size=2, bound=True)
    second = run_search(given, settings, store, refuse_pool, prepare_workload=workload)
    assert found(second) == found(first)
    assert second.costs.num_evaluated == 0
    assert second.costs.decoded_tokens == 0


class ShuffledPool(InlinePool):
    """Four workers whose jobs end in any order."""

    num_workers = 4

    def __init__(self, control: Control, should_stop: StopCheck, seed: int) -> None:
        super().__init__(TableEvaluator(control.folder), should_stop)
        self._random = random.Random(seed)

    def wait(self, timeout_s: float) -> list[Completed]:
        """Do any of the jobs."""
        self._queue.rotate(self._random.randrange(len(self._queue) or 1))
        return super().wait(timeout_s)


@pytest.mark.parametrize("seed", [1, 2])
def test_several_workers_find_the_same_in_any_order(
    settings: Settings, store: Store, control: Control, seed: int
) -> None:
    given = config(**NARROW, batch_size=1, bound=True)

    def start(should_stop: StopCheck) -> WorkerPool:
        return ShuffledPool(control, should_stop, seed)

    report = run_search(given, settings, store, start, prepare_workload=workload)
    assert found(report) == found(whole_twin(settings, control, batch_size=1))
    assert report.costs.num_dropped > 0
    second = run_search(given, settings, store, refuse_pool, prepare_workload=workload)
    assert found(second) == found(report)


def test_whole_evaluations_answer_before_parts(
    settings: Settings, store: Store, control: Control
) -> None:
    search(settings, store, control, **NARROW, batch_size=2)
    given = config(**NARROW, batch_size=2, bound=True)
    report = run_search(given, settings, store, refuse_pool, prepare_workload=workload)
    assert report.costs.num_dropped == 0


def test_a_stopped_search_continues_with_its_parts(
    settings: Settings, store: Store, control: Control
) -> None:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    given = config(**NARROW, batch_size=2, bound=True)
    for limit in (5, 11):
        with pytest.raises(SearchCancelledError):
            run_search(
                given,
                settings,
                store,
                start,
                prepare_workload=workload,
                should_stop=lambda limit=limit: len(control.calls) >= limit,
            )
    report = run_search(given, settings, store, start, prepare_workload=workload)
    keys = [key for key, _ in control.calls]
    assert len(keys) == len(set(keys))
    assert found(report) == found(whole_twin(settings, control))


def test_a_failed_part_fails_its_set(settings: Settings, store: Store, control: Control) -> None:
    (control.folder / "raise").write_text("2")
    report = bounded(settings, store, control)
    (row,) = [row for row in report.levels[0].rows if row.error]
    assert row.skip == "2"
    assert row.key is not None
    assert "2 is broken" in (row.error or "")
    assert found(report) == found(whole_twin(settings, control))


def test_dropped_sets_are_pruned_trials_recorded_once(
    settings: Settings, store: Store, control: Control
) -> None:
    report = bounded(settings, store, control, batch_size=1)
    bounded(settings, store, control, batch_size=1)
    trials = optuna.load_study(
        study_name=report.study, storage=settings.resolved_optuna_url
    ).get_trials()
    labels = [trial.user_attrs["skip"] for trial in trials]
    assert len(labels) == len(set(labels))
    dropped = {row.skip for level in report.levels for row in level.rows if row.dropped}
    pruned = [trial for trial in trials if trial.state is TrialState.PRUNED]
    assert {trial.user_attrs["skip"] for trial in pruned} == dropped
    (four,) = [trial for trial in pruned if trial.user_attrs["skip"] == "4"]
    assert [items for items, _, _ in four.user_attrs["parts"]] == [1, 2, 3, 4, 5, 6]
    # Without dropping the same study gets the values that are missing.
    search(settings, store, control, **NARROW, batch_size=1)
    trials = optuna.load_study(
        study_name=report.study, storage=settings.resolved_optuna_url
    ).get_trials(states=(TrialState.COMPLETE,))
    assert dropped <= {trial.user_attrs["skip"] for trial in trials}


def test_a_sweep_of_tolerances_completes_only_what_another_one_needs(
    settings: Settings, store: Store, control: Control
) -> None:
    base = config(**NARROW, batch_size=1, bound=True)
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    report = run_sweep(
        SensitivityConfig(search=base, tolerances=(0.05, 0.0, -0.1, -0.2)),
        settings,
        store,
        start,
        prepare_workload=workload,
    )
    keys = [key for key, _ in control.calls]
    assert len(keys) == len(set(keys))
    assert report.cost is not None
    assert report.cost.is_within_limit
    # Parts of base and others: at most all items of all sets that these searches list, once.
    most = 8 * (1 + evaluation_bound(len(plan_search(base, settings, workload).units), 2, 3))
    assert report.cost.num_base < most
    for tolerance, variant in zip((-0.05, 0.05, 0.0, -0.1, -0.2), report.variants, strict=True):
        twin = whole_twin(settings, control, batch_size=1, tolerance=tolerance)
        assert variant.answer.skip == twin.answer.skip
        assert variant.stop_reason == twin.stop_reason


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"strategy": "random"}, "strategy random evaluates every set whole"),
        (
            {"drafter": "token-recycling:state_scope=run,update=path"},
            "drafter token-recycling remembers items across batches",
        ),
    ],
)
def test_a_search_that_cannot_drop_anything_is_refused(
    settings: Settings, store: Store, control: Control, changes: dict[str, object], note: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{note}.*: bound has no use, leave it out"):
        bounded(settings, store, control, **changes)
    assert store.runs.count() == 0
    given = config(**NARROW, batch_size=2, bound=True, **changes)
    both = CompareConfig(search=given, strategies=("sleb", "tss"))
    if given.strategy == "tss":  # its drafter serves none
        with pytest.raises(ConfigError, match="bound has no use"):
            plan_sweep(both, settings, workload)
    else:
        plans = dict(plan_sweep(both, settings, workload).plans)
        assert (plans["sleb"].is_bounded, plans["tss"].is_bounded) == (False, True)


def test_bounding_needs_more_than_one_batch() -> None:
    with pytest.raises(ValueError, match=r"batch of 8 holds all 8: lower batch_size.* to 2"):
        SearchConfig(domain="qa", num_selection=8, batch_size=8, bound=True)


def test_candidates_and_protected_layers_make_up_the_space(settings: Settings) -> None:
    def units(**changes: object) -> list[str]:
        plan = plan_search(config(**changes), settings, workload)
        return [str(unit) for unit in plan.units]

    # Six layers; the ends are protected unless told otherwise.
    assert units() == ["1", "2", "3", "4"]
    assert units(candidates="0-2,4") == ["1", "2", "4"]
    assert units(candidates="0-2,4", protect_ends=False) == ["0", "1", "2", "4"]
    assert units(protected="2-3") == ["1", "4"]
    assert units(candidates="3,1-3", protected="2", units="attention") == ["a1", "a3"]
    names = {
        plan_search(config(**one), settings, workload).study
        for one in ({}, {"candidates": "1-2"}, {"protected": "3,4"})
    }
    assert len(names) == 3
    for left, right in itertools.combinations(
        ({"bound": True, "batch_size": 2}, {"batch_size": 2}), 2
    ):
        both = [plan_search(config(**one), settings, workload).study for one in (left, right)]
        assert both[0] == both[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": "1-9"}, "candidates=1-9 names layers 6, 7, 8, 9, but the target has 6"),
        ({"protected": "6"}, "protected=6 names layers 6, .* numbered 0 to 5"),
        ({"protected": "1-4"}, "leaves nothing to skip with .*candidates=all, protected=1-4"),
        ({"candidates": "0"}, "leaves nothing to skip with .*candidates=0, protected=none"),
    ],
)
def test_layers_that_do_not_exist_are_refused_before_a_model_is_loaded(
    settings: Settings, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_search(config(**changes), settings, workload)

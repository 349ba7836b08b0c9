"""Searches of a domain without a metric: agreement with the dense output decides."""

from __future__ import annotations

import random
from pathlib import Path

import optuna
import pytest

from dashboards.comparison import comparisons
from dashboards.summary import SearchSummary
from db.schemas import NegativeControl
from db.store import Store
from flows.report import comparison_table, level_tables, to_markdown
from specdec_core.config.domains import search_config
from specdec_core.config.search import CompareConfig, SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.records import EvaluationResult
from specdec_core.skip import SkipConfig
from tasks.compose import control_tolerance
from tasks.control import compare_control
from tasks.evaluator import ModelEvaluatorFactory
from tasks.jobs import Completed, Job, StopCheck
from tasks.mirrored import child_metrics
from tasks.plan import plan_search
from tasks.pool import InlinePool, pool_factory
from tasks.report import SearchReport
from tasks.search import run_search
from tasks.sinks import scored_rows
from tasks.sweep import run_sweep
from tests.table_evaluator import OUTPUT_TOKENS, Control, TableEvaluator, config, workload
from tests.unit.tasks.inline_search import refuse_pool

# Positions of the 25 tokens of every output that each layer left out changes.
CHANGED = {1: range(5), 2: range(0), 3: range(3, 4), 4: range(5, 20)}


class Rewriting(TableEvaluator):
    """Every layer left out changes some tokens of every output, the same ones in all items."""

    def run(self, job: Job, should_stop: StopCheck) -> EvaluationResult:
        result = super().run(job, should_stop)
        layers = [unit.layer for unit in SkipConfig.parse(getattr(job, "skip", "")).units]
        changed = {place for layer in layers for place in CHANGED[layer]}
        ids = tuple(100 + i if i in changed else i for i in range(OUTPUT_TOKENS))
        samples = [sample.model_copy(update={"token_ids": ids}) for sample in result.samples]
        return result.model_copy(update={"samples": tuple(samples)})


class ShuffledPool(InlinePool):
    """Four workers whose jobs end in any order, dense ones among the last too."""

    num_workers = 4

    def __init__(self, evaluator: TableEvaluator, should_stop: StopCheck, seed: int) -> None:
        super().__init__(evaluator, should_stop)
        self._random = random.Random(seed)

    def wait(self, timeout_s: float) -> list[Completed]:
        """Do any of the jobs."""
        self._queue.rotate(self._random.randrange(len(self._queue) or 1))
        return super().wait(timeout_s)


def chat(
    settings: Settings, store: Store, control: Control, seed: int | None = None, **changes: object
) -> SearchReport:
    evaluator = Rewriting(control.folder)
    start = pool_factory(settings, evaluator, is_inline=True)
    if seed is not None:
        start = lambda stop: ShuffledPool(evaluator, stop, seed)  # noqa: E731
    given = config(domain="chat", **changes)
    return run_search(given, settings, store, start, prepare_workload=workload)


def test_by_default_chat_is_searched_by_acceptance_with_agreement_shown(
    settings: Settings, store: Store, control: Control
) -> None:
    default = search_config("chat")
    report = chat(
        settings,
        store,
        control,
        strategy=default.strategy,
        tolerance_metric=default.tolerance_metric,
    )
    # 2,4 accepts most, 3 tokens per step, and agrees least.
    assert report.answer.skip == "2,4"
    assert report.answer.metric == pytest.approx(0.4)
    assert report.verdict == "published"
    assert report.heldout is not None
    assert report.heldout.metric_sparse == pytest.approx(0.4)


@pytest.mark.parametrize(("domain", "expected"), [("chat", -0.05), ("translation", -1.0)])
def test_a_tolerance_on_agreement_says_nothing_about_the_metric_of_a_control(
    settings: Settings, domain: str, expected: float
) -> None:
    plan = plan_search(config(domain=domain, tolerance_metric=-1.0), settings, workload)
    assert control_tolerance(plan) == expected


def test_agreement_decides_and_is_named_everywhere(
    settings: Settings, store: Store, control: Control
) -> None:
    report = chat(settings, store, control)
    # By acceptance alone 2,4 is best, 3 tokens per step instead of 2. It keeps 10 of 25 tokens,
    # so that its agreement is 0.4. 3 changes one token, and 24 / 25 is within 5 % of 1.
    assert report.answer.skip == "2,3"
    assert report.answer.metric == pytest.approx(0.96)
    assert report.answer.gain_metric == pytest.approx(-0.04)
    assert (report.dense.metric, report.metric_name) == (1.0, "agreement")
    rows = {row.skip: row for level in report.levels for row in level.rows}
    assert {skip: rows[skip].metric for skip in "1234"} == pytest.approx(
        {"1": 0.8, "2": 1.0, "3": 0.96, "4": 0.4}
    )
    found = report.heldout
    assert found is not None
    assert (found.metric_name, found.metric_dense) == ("agreement", 1.0)
    assert found.metric_sparse == pytest.approx(0.96)
    assert found.metric_change is not None
    # Every item agrees by the same share, so that no resample differs.
    assert found.metric_change.high == pytest.approx(-0.04)
    assert report.verdict == "published"
    assert "agreement -4.0% (-4.0% to -4.0%)" in report.headline
    profile = store.profiles.resolve("path:/table", "chat")
    scores = profile.selection
    assert (scores.metric, scores.dense_metric) == (pytest.approx(0.96), 1.0)
    assert scores.metric_name == "agreement"
    assert profile.heldout is not None
    assert profile.heldout.metric_name == "agreement"
    assert any("no task metric" in note for note in report.notes)
    assert "agreement with dense" in {row[0] for row in comparison_table(report).rows}
    assert "agreement change" in level_tables(report)[0].columns
    assert " metric" not in to_markdown(report).replace("no task metric", "")
    study = optuna.load_study(study_name=report.study, storage=settings.resolved_optuna_url)
    assert len(study.directions) == 2
    assert study.user_attrs["metric_names"] == ["acceptance_length", "agreement"]


def test_evaluations_stay_as_they_are_and_answer_again(
    settings: Settings, store: Store, control: Control
) -> None:
    first = chat(settings, store, control)
    assert first.answer.key is not None
    stored = store.evaluations.summary(first.answer.key)
    assert stored is not None
    assert stored.metric is None
    again = run_search(
        config(domain="chat"), settings, store, refuse_pool, prepare_workload=workload
    )
    assert again.levels == first.levels
    # What is sent to the tracker later has it too.
    rows = [e.row for e in store.runs.evaluations(first.run_id) if e.role in ("dense", "selection")]
    scored, name = scored_rows(store, rows)
    assert name == "agreement"
    assert {row.request.skip: row.summary.metric for row in scored if row.summary}[
        "4"
    ] == pytest.approx(0.4)


def test_pages_and_tracker_call_it_agreement(
    settings: Settings, store: Store, control: Control
) -> None:
    summary = chat(settings, store, control).model_dump(mode="json")
    found = comparisons(SearchSummary.model_validate(summary))[1]
    # Fewer common tokens are no worse answer.
    assert (found.figure, found.reading) == ("agreement with dense", "differs from dense")
    rows = [row.row for row in store.runs.evaluations(summary["run_id"]) if row.role != "part"]
    scored, name = scored_rows(store, [row for row in rows if row.key == summary["answer"]["key"]])
    assert name == "metric"  # without dense there is nothing to compare with
    assert scored[0].summary is not None
    told = child_metrics(
        scored[0].summary.model_copy(update={"metric": 0.96}),
        None,
        scored[0].summary.model_copy(update={"metric": 1.0}),
        "agreement",
    )
    assert told["agreement"] == 0.96
    assert told["agreement_gain"] == pytest.approx(-0.04)
    assert not {"metric", "metric_gain"} & set(told)


def test_an_answer_outside_the_tolerance_is_not_published(
    settings: Settings, store: Store, control: Control
) -> None:
    # accept-only does not ask for agreement; what is published must keep it all the same.
    report = chat(settings, store, control, strategy="accept-only")
    assert (report.answer.skip, report.verdict) == ("2,4", "did not hold")
    assert "agreement with the dense output changed by -60.0%" in report.profile.reason


@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])
def test_sets_are_dropped_early_and_nothing_changes(
    settings: Settings, store: Store, control: Control, tmp_path: Path, seed: int | None
) -> None:
    narrow = {"max_new_tokens": 25, "batch_size": 1}
    report = chat(settings, store, control, seed, bound=True, **narrow)
    with Store.open(f"sqlite:///{tmp_path}/twin.db") as other:
        twin = chat(settings, other, control, **narrow)
    assert report.answer.skip == twin.answer.skip == "2,3"
    assert report.answer.metric == twin.answer.metric
    assert [row.skip for row in report.front] == [row.skip for row in twin.front]
    frontiers = [
        [[row.skip for row in level.rows if row.is_frontier] for level in each.levels[:-1]]
        for each in (report, twin)
    ]
    assert frontiers[0] == frontiers[1]
    if seed is None:
        dropped = {row.skip: row.dropped for level in report.levels for row in level.rows}
        # One worker. After an item with 0.4 of 8 the mean is at most 7.4 / 8, and 0.95 is needed.
        assert dropped["4"] is not None
        assert dropped["4"].startswith("after 1 of 8 items")
        assert dropped["4"].endswith("agreement 0.9250")


def test_strategies_that_go_by_the_metric_go_by_agreement(
    settings: Settings, store: Store, control: Control
) -> None:
    start = pool_factory(settings, Rewriting(control.folder), is_inline=True)
    given = CompareConfig(
        search=config(domain="chat"), strategies=("tss", "metric-only", "gm-skip", "random")
    )
    report = run_sweep(given, settings, store, start, prepare_workload=workload)
    answers = {variant.name: variant.answer for variant in report.variants}
    # Only 2 changes nothing; dense is as good, and the set that skips more is preferred.
    assert answers["metric-only"].skip == "2"
    assert answers["tss"].skip == "2,3"
    assert report.metric_name == "agreement"
    assert any("no task metric" in note for note in report.notes)
    assert all(variant.answer.metric is not None for variant in report.variants)


def test_a_control_without_a_metric_is_judged_by_agreement(
    settings: Settings, store: Store, control: Control
) -> None:
    start = pool_factory(settings, Rewriting(control.folder), is_inline=True)
    given = config(control="chat", tolerance_acceptance=-1.0)
    report = run_search(given, settings, store, start, prepare_workload=workload)
    found = report.negative_control
    assert found is not None
    assert (found.skip, found.metric_name, found.verdict) == ("2,3", "agreement", "not harmed")
    assert found.metric_sparse == pytest.approx(0.96)
    # The first 3 of 25 tokens come before the one that differs.
    assert found.same_beginning.estimate == pytest.approx(3 / 25)
    plan = plan_search(given, settings, workload)
    assert plan.control is not None
    stricter = compare_control(store, plan.control, "2,3", -0.01)
    assert stricter is not None
    assert stricter.verdict == "harmed"
    assert "its agreement changes by -4.0% to -4.0%, all below -1.0%" in stricter.reason
    # Reports stored before had the share of the common beginning under another name.
    older = found.model_dump(mode="json")
    older["agreement"] = older.pop("same_beginning")
    assert NegativeControl.model_validate(older) == found


def test_a_chat_search_on_a_real_model(tmp_path: Path, settings: Settings, store: Store) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model", num_layers=4)
    lines = [
        f'{{"id": "c{i}", "domain": "chat", "prompt": "tell {i} {i} {i}", "reference": null, '
        '"metric": null, "meta": {}}\n'
        for i in range(6)
    ]
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(lines))
    given = SearchConfig(
        domain="chat",
        target=f"path:{folder}",
        suite=str(path),
        units="halves",
        beam=1,
        depth=1,
        tolerance=-1.0,
        num_selection=2,
        num_heldout=2,
        max_new_tokens=6,
        batch_size=1,
        bound=True,
    )
    start = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True)
    report = run_search(given, settings, store, start)
    assert report.dense.metric == 1.0
    scored = [row for row in report.ablation if row.metric is not None]
    assert scored
    assert all(0.0 <= (row.metric or 0.0) <= 1.0 for row in scored)
    assert report.heldout is not None
    assert report.heldout.metric_name == "agreement"
    again = run_search(given, settings, store, refuse_pool)
    assert again.levels == report.levels

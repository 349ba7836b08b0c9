"""The negative control: verdicts by hand, the section of the report, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from db.documents import export_document
from db.schemas import Interval
from db.store import Store
from flows.report import render, to_markdown
from specdec_core.config.domains import DOMAINS, compare_config, search_config
from specdec_core.config.search import SensitivityConfig
from specdec_core.config.settings import Settings
from specdec_core.data.records import Suite
from specdec_core.errors import ConfigError, DataError, ProfileNotFoundError
from specdec_core.records import EvaluationResult, SampleResult, StepTrace
from tasks.control import control_verdict, same_beginning
from tasks.heldout import MetricChange
from tasks.jobs import Job, StopCheck
from tasks.mirrored import report_metrics
from tasks.plan import plan_search
from tasks.pool import pool_factory
from tasks.prepare import Workload, prepare
from tasks.report import SearchReport
from tasks.search import run_search
from tests.table_evaluator import Control, TableEvaluator, config, workload
from tests.unit.tasks.inline_search import refuse_pool


def searched(settings: Settings, store: Store, faults: Control, **changes: object) -> SearchReport:
    start = pool_factory(settings, TableEvaluator(faults.folder), is_inline=True)
    return run_search(config(**changes), settings, store, start, prepare_workload=workload)


def metric(low: float, high: float, dense: float = 0.5, kind: str = "relative") -> MetricChange:
    change = Interval(estimate=(low + high) / 2, low=low, high=high)
    return MetricChange(dense, dense, change, kind)  # type: ignore[arg-type]  # a literal


@pytest.mark.parametrize(
    ("found", "guards", "verdict", "text"),
    [
        (metric(-0.04, 0.1), (), "not harmed", "-4.0% to +10.0%, none of it below -5.0%"),
        (metric(-0.05, 0.1), (), "not harmed", "none of it below"),
        (metric(-0.06, 0.1), (), "undecided", "on both sides of -5.0%"),
        (metric(-0.3, -0.06), (), "harmed", "-30.0% to -6.0%, all below -5.0%"),
        (metric(0.1, 0.2), ("longest repeat grew",), "harmed", "degenerate: longest repeat grew"),
        (metric(-0.1, 0.1, dense=0.0005), (), "undecided", "next to nothing"),
        (metric(-0.2, -0.1, kind="difference"), (), "harmed", "-0.2000 to -0.1000"),
    ],
)
def test_verdicts(found: MetricChange, guards: tuple[str, ...], verdict: str, text: str) -> None:
    decided, reason = control_verdict(found, guards, -0.05)
    assert decided == verdict
    assert text in reason


def tokens(item: str, *ids: int) -> SampleResult:
    return SampleResult(
        item_id=item,
        prompt_tokens=1,
        token_ids=ids,
        text="",
        answer="",
        useful_tokens=len(ids),
        finish_reason="length",
        trace=StepTrace(),
    )


def test_the_same_beginning_ends_at_the_first_difference() -> None:
    dense = [tokens("a", 1, 2, 3, 4), tokens("b", 5, 6)]
    sparse = [tokens("a", 1, 2, 9, 4), tokens("b", 5, 6, 7)]
    # 2 of 4 and 2 of 2.
    assert same_beginning(dense, sparse).estimate == pytest.approx(4 / 6)


def test_the_report_says_what_the_set_does_elsewhere(
    settings: Settings, store: Store, control: Control
) -> None:
    report = searched(settings, store, control, control="summarization", num_control=12)
    found = report.negative_control
    assert found is not None
    # By the table, 2,3 gains 0.03 of about 0.5 in every domain, 2 tokens a step become 2.67.
    assert (found.domain, found.skip, found.verdict) == ("summarization", "2,3", "not harmed")
    assert len(found.item_ids) == 12
    assert found.metric_change is not None
    assert found.metric_change.low > 0.05
    assert found.acceptance_change.estimate == pytest.approx(24 / 9 / 2 - 1)
    assert found.same_beginning.estimate == 1.0
    assert any("summarization is not harmed by 2,3" in note for note in report.notes)
    assert "summarization, 12 items: not harmed" in to_markdown(report)
    assert render(report)
    metrics = report_metrics(report.model_dump(mode="json"))
    assert metrics["control_acceptance_change"] == found.acceptance_change.estimate
    asked = [e for e in store.runs.evaluations(report.run_id) if e.role.startswith("control")]
    assert {e.role for e in asked} == {"control-dense", "control-sparse"}
    for each in asked:
        request = each.row.request
        assert (request.domain, request.batch_size, request.mode) == ("summarization", 1, "decode")
        assert not request.is_timed
        assert request.drafter.method == "prompt-lookup"
    # The same command again does nothing, and says the same.
    again = run_search(
        config(control="summarization", num_control=12),
        settings,
        store,
        refuse_pool,
        prepare_workload=workload,
    )
    assert again.negative_control == found


class HarmfulElsewhere(TableEvaluator):
    """Every skip set loses most of the metric in other domains than translation."""

    def run(self, job: Job, should_stop: StopCheck) -> EvaluationResult:
        result = super().run(job, should_stop)
        if result.samples and getattr(job, "domain", "") != "translation" and job.skip:
            samples = [s.model_copy(update={"score": (s.score or 0.0) / 4}) for s in result.samples]
            return result.model_copy(update={"samples": tuple(samples)})
        return result


def test_harm_elsewhere_is_reported_and_stops_nothing(
    settings: Settings, store: Store, control: Control
) -> None:
    start = pool_factory(settings, HarmfulElsewhere(control.folder), is_inline=True)
    given = config(control="qa")
    report = run_search(given, settings, store, start, prepare_workload=workload)
    assert report.negative_control is not None
    assert report.negative_control.verdict == "harmed"
    assert report.verdict == "published"
    # Its provenance tells it to whoever gets the profile.
    profile = store.profiles.resolve("path:/table", "translation")
    run = store.runs.get(profile.run_id)
    assert run is not None
    document = export_document(profile, run, [], [])
    assert document.origin.plan["negative_control"]["verdict"] == "harmed"


def test_a_profile_never_answers_for_the_control_domain(
    settings: Settings, store: Store, control: Control
) -> None:
    searched(settings, store, control, control="qa")
    assert store.profiles.resolve("path:/table", "translation").skip == "2,3"
    with pytest.raises(ProfileNotFoundError):
        store.profiles.resolve("path:/table", "qa")
    assert {profile.domain for profile in store.profiles.list(limit=None)} == {"translation"}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("translatoin", ConfigError, "did you mean 'translation'"),
        ("riddles", ConfigError, "domain 'riddles' is unknown"),
        ("qa=/nowhere.jsonl", DataError, "does not exist"),
    ],
)
def test_a_wrong_control_is_refused_before_anything_is_stored(
    settings: Settings, store: Store, text: str, error: type[Exception], message: str
) -> None:
    def only_the_suite(target: str, domain: str, suite: str | None, *rest: object):  # type: ignore[no-untyped-def]  # a Preparer
        if suite is None:
            return workload(target, domain)
        return prepare(target, domain, suite, "auto", settings)

    with pytest.raises(error, match=message):
        run_search(
            config(control=text), settings, store, refuse_pool, prepare_workload=only_the_suite
        )
    assert store.runs.list() == []


@pytest.mark.parametrize(("num_items", "is_enough"), [(17, False), (18, True)])
def test_a_control_with_too_few_items_is_told_from_the_searched_suite(
    settings: Settings, num_items: int, is_enough: bool
) -> None:
    # 16 items are left to a search of the control's domain, however few this search selects.
    def few(target: str, domain: str, *_rest: object) -> Workload:
        whole = workload(target, domain)
        items = whole.suite.items[:num_items]
        small = Suite.of("riddles", domain, items, "riddles.jsonl")
        return replace(whole, suite=small) if domain == "riddles" else whole

    asked = config(control="riddles=riddles.jsonl", num_selection=8)
    if is_enough:
        plan = plan_search(asked, settings, few)
        assert plan.control is not None
        assert len(plan.control.item_ids) == 2
    else:
        said = r"control 'riddles=riddles\.jsonl' is too small: .* 16 of its items, and at least 2"
        with pytest.raises(DataError, match=said):
            plan_search(asked, settings, few)


def test_the_searched_domain_is_no_control() -> None:
    with pytest.raises(ConfigError, match="control domain 'qa' is the one that is searched"):
        search_config("qa", {"control": "qa"})
    with pytest.raises(ConfigError, match="control domain 'qa' is the one that is searched"):
        search_config("qa", {"control": "qa=other.jsonl"})


def test_every_domain_has_another_one_as_control_and_none_can_be_asked_for() -> None:
    assert all(search_config(domain).control_domain not in (None, domain) for domain in DOMAINS)
    assert search_config("translation", {"control": "none"}).control is None
    assert search_config("riddles", {"suite": "riddles.jsonl"}).control is None
    own = search_config("translation", {"control": "riddles=my/riddles.jsonl"})
    assert (own.control_domain, own.control_suite) == ("riddles", "my/riddles.jsonl")


def test_the_control_takes_no_part_in_the_search_itself(settings: Settings) -> None:
    plain = plan_search(config(), settings, workload)
    checked = plan_search(config(control="qa", num_control=7), settings, workload)
    assert plain.study == checked.study
    assert plain.control is None
    assert checked.control is not None
    assert len(checked.control.item_ids) == 7
    # Comparisons of strategies publish nothing, so they look nowhere else.
    assert compare_config("translation").search.control is None
    assert SensitivityConfig(search=config(control="qa")).search.control is None


def test_a_users_own_suite_is_a_control(
    settings: Settings, store: Store, control: Control, tmp_path: Path
) -> None:
    seen: list[tuple[str, str | None]] = []

    def noting(target: str, domain: str, suite: str | None, *rest: object):  # type: ignore[no-untyped-def]  # a Preparer
        seen.append((domain, suite))
        return workload(target, domain)

    path = str(tmp_path / "riddles.jsonl")
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    given = config(control=f"riddles={path}")
    report = run_search(given, settings, store, start, prepare_workload=noting)
    assert seen == [("translation", None), ("riddles", path)]
    assert report.negative_control is not None
    assert report.negative_control.domain == "riddles"

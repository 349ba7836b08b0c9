from __future__ import annotations

import pytest

from dashboards.queries import Question, load_overview
from dashboards.summary import SearchSummary, read_summary
from db.api.problems import ProblemError
from db.store import Store
from tests.integration import store_examples
from tests.unit.dashboards import examples


def is_part(shown: object, stored: object) -> bool:
    """Whether all that is shown is stored; reports hold more than the dashboard shows."""
    if isinstance(shown, dict) and isinstance(stored, dict):
        return all(is_part(value, stored[key]) for key, value in shown.items())
    if isinstance(shown, list) and isinstance(stored, list):
        return len(shown) == len(stored) and all(map(is_part, shown, stored))
    return shown == stored


def test_stored_report_of_a_search_is_read() -> None:
    stored = examples.report("r1").model_dump(mode="json")
    search = read_summary(stored)
    assert search is not None
    shown = search.model_dump(mode="json")
    for name in set(shown) - {"config", "profile"}:
        assert is_part(shown[name], stored[name]), name
    assert search.config.epsilon_metric == -0.05
    assert search.compared_label == "a1,a3"


def test_report_with_unknown_fields_is_read() -> None:
    stored = examples.report("r1").model_dump(mode="json") | {"field of a newer version": 1}
    assert isinstance(read_summary(stored), SearchSummary)


def test_nothing_is_selected_in_an_empty_store(store: Store) -> None:
    overview = load_overview(store, Question())
    assert (overview.profiles, overview.runs, overview.detail) == ((), (), None)
    assert overview.choices == {"domain": (), "target": (), "drafter": ()}


def test_newest_active_profile_is_selected_with_its_run(store: Store) -> None:
    examples.seed(store)
    newest = examples.seed(store, profile={"domain": "qa"})
    detail = load_overview(store, Question()).detail
    assert detail is not None
    assert detail.profile == newest
    assert detail.run.id == newest.run_id
    assert detail.search is not None
    assert detail.num_evaluations == 2
    assert detail.history == (newest,)


def test_filters_leave_matching_profiles_and_all_choices(store: Store) -> None:
    first = examples.seed(store)
    examples.seed(store, profile={"domain": "qa", "target_identity": "b" * 64})
    for given in ({"domain": "translation"}, {"target": "a" * 64}):
        overview = load_overview(store, Question(**given))
        assert overview.profiles == (first,)
        assert overview.choices["domain"] == ("qa", "translation")
        assert overview.detail is not None
        assert overview.detail.profile == first
    nothing = load_overview(store, Question(drafter="none"))
    assert (nothing.profiles, nothing.detail) == ((), None)


def test_retired_version_can_be_asked_for(store: Store) -> None:
    old = examples.seed(store)
    new = examples.seed(store, profile={"skip": "a4"})
    assert old.id is not None
    detail = load_overview(store, Question(profile=old.id)).detail
    assert detail is not None
    assert detail.profile is not None
    assert (detail.profile.id, detail.profile.status) == (old.id, "retired")
    assert [version.id for version in detail.history] == [new.id, old.id]


def test_run_can_be_asked_for(store: Store) -> None:
    profile = examples.seed(store)
    detail = load_overview(store, Question(run=profile.run_id)).detail
    assert detail is not None
    assert detail.profile == profile


@pytest.mark.parametrize("question", [{"profile": 7}, {"run": "nothing"}])
def test_unknown_selection_is_not_found(store: Store, question: dict[str, object]) -> None:
    with pytest.raises(ProblemError, match="is not stored") as caught:
        load_overview(store, Question.model_validate(question))
    assert caught.value.status == 404


def test_run_without_a_report_says_why(store: Store) -> None:
    run = store_examples.make_run(store)
    problem = {}
    for changes in ({}, {"status": "failed", "error": "disk full"}, {"status": "cancelled"}):
        store.runs.update(run.id, **changes)  # type: ignore[arg-type]  # names come from a table
        detail = load_overview(store, Question(run=run.id)).detail
        assert detail is not None
        problem[detail.run.status] = detail.problem
    assert problem == {
        "running": f"run {run.id} is still going: figures appear when it ends",
        "failed": f"run {run.id} is failed and left no result: disk full",
        "cancelled": f"run {run.id} is cancelled and left no result: disk full",
    }


def test_damaged_report_and_other_kinds_are_named(store: Store) -> None:
    damaged = store_examples.make_run(store)
    store.runs.update(damaged.id, status="completed", summary={"headline": 1})
    other = store_examples.make_run(store, kind="benchmark")
    for run, text in ((damaged, "cannot show"), (other, "kind 'benchmark'")):
        detail = load_overview(store, Question(run=run.id)).detail
        assert detail is not None
        assert detail.search is None
        assert text in (detail.problem or "")


def test_acceptance_by_depth_is_counted_from_stored_steps(store: Store) -> None:
    examples.seed(store)
    detail = load_overview(store, Question()).detail
    assert detail is not None
    assert detail.depth is not None
    # Dense: 2 of 4 steps accept one token or more, none accepts two.
    assert detail.depth.dense == (0.5, 0.0)
    # Sparse: 3 of 4 and 1 of 4.
    assert detail.depth.sparse == (0.75, 0.25)
    assert (detail.depth.num_steps_dense, detail.depth.num_steps_sparse) == (4, 4)


def test_empty_values_in_the_address_mean_no_filter() -> None:
    assert Question.model_validate({"domain": "", "target": "t", "drafter": ""}).filters == {
        "target": "t"
    }

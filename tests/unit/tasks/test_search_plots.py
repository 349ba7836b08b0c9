"""What the plots of searches and sweeps show, read from their axes."""

from __future__ import annotations

import pytest

from db.schemas import HeldoutComparison
from db.store import Store
from specdec_core.config.settings import Settings
from tasks.report import SearchReport
from tasks.search_plots import ablation_figure, heldout_figure, names_of, search_plots
from tests.table_evaluator import Control
from tests.unit.dashboards import examples
from tests.unit.tasks.inline_search import search


@pytest.fixture
def report(settings: Settings, store: Store, control: Control) -> SearchReport:
    return search(settings, store, control)


def test_single_units_are_drawn_by_layer_as_shares_of_dense(report: SearchReport) -> None:
    acceptance, metric, length, stop_rate = ablation_figure([report]).axes
    assert acceptance.get_ylabel() == "acceptance / dense"
    # Whole steps: 24 tokens after the first take 12, 14, 10, 11 and 10 steps of 2, 1.7, 2.4, 2.2
    # and 2.5 tokens: the shares of acceptance are those of steps the other way round.
    line = acceptance.get_lines()[0]
    assert list(line.get_xdata()) == [1, 2, 3, 4]
    assert list(line.get_ydata()) == pytest.approx([12 / 14, 12 / 10, 12 / 11, 12 / 10])
    # The items' noise is the same in every set.
    dense = report.dense.metric
    assert dense is not None
    changes = (-0.05, 0.02, 0.01, -0.2)
    shares = [(dense + change) / dense for change in changes]
    assert list(metric.get_lines()[0].get_ydata()) == pytest.approx(shares)
    # Every output of the table has 25 tokens and ends by itself.
    assert list(length.get_lines()[0].get_ydata()) == [1.0] * 4
    assert list(stop_rate.get_lines()[0].get_ydata()) == [1.0] * 4
    # The tolerance of -5 % is the last line of both.
    assert [axes.get_lines()[-1].get_ydata()[0] for axes in (acceptance, metric)] == [0.95, 0.95]


def test_searches_side_by_side_are_named_by_what_tells_them_apart(report: SearchReport) -> None:
    other = report.model_copy(
        update={"config": report.config.model_copy(update={"domain": "qa", "units": "halves"})}
    )
    assert names_of([report]) == ["translation"]
    assert names_of([report, other]) == ["translation, block", "qa, halves"]
    acceptance = ablation_figure([report, other]).axes[0]
    assert [line.get_label() for line in acceptance.get_lines()][:2] == names_of([report, other])


def test_halves_of_one_layer_are_series_of_their_own() -> None:
    stored = examples.report("r1")
    mixed = (*stored.ablation, examples.row("m2", 2.0, 0.2), examples.row("m3", 2.0, 0.1))
    acceptance = ablation_figure([stored.model_copy(update={"ablation": mixed})]).axes[0]
    named = {line.get_label(): list(line.get_xdata()) for line in acceptance.get_lines()[:2]}
    assert named == {"translation, attention halves": [1, 2, 3], "translation, MLP": [2, 3]}


def test_agreement_has_panels_and_a_front_of_its_own(
    settings: Settings, store: Store, control: Control
) -> None:
    chat = search(settings, store, control, domain="chat")
    drawn = dict(search_plots(chat))
    assert list(drawn) == ["ablation", "pareto", "heldout"]
    panels = [axes.get_ylabel() for axes in drawn["ablation"]().axes]
    assert panels[:2] == ["acceptance / dense", "agreement with dense"]
    assert len(panels) == 4
    assert drawn["pareto"]().axes[0].get_xlabel() == "agreement change against dense"
    titles = [axes.get_xlabel() for axes in drawn["heldout"]().axes]
    assert titles == ["acceptance change", "agreement change", "speed over dense"]


def test_nothing_compared_and_nothing_scored_draw_nothing() -> None:
    bare = examples.report("r1", ablation=(), levels=(), heldout=None)
    assert list(search_plots(bare)) == []


def test_a_plain_difference_of_scores_is_not_drawn_as_per_cent() -> None:
    plain: HeldoutComparison = examples.heldout(metric_change_kind="difference")
    titles = [axes.get_xlabel() for axes in heldout_figure([("a1", plain)]).axes]
    assert titles == ["acceptance change", "speed over dense"]

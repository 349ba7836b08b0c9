from __future__ import annotations

import json

import pytest

from dashboards import charts
from dashboards.queries import Depth
from dashboards.summary import SearchSummary
from tasks.report import ConfigurationRow, LevelTable
from tests.unit.dashboards import examples


def search(**changes: object) -> SearchSummary:
    return SearchSummary.model_validate(examples.report("r1", **changes).model_dump())


def lines(figure: object) -> list[tuple[float, float]]:
    """Ends of every straight line drawn on a figure: (y, y) or (x, x)."""
    shapes = json.loads(charts.to_json(figure))["layout"].get("shapes", [])
    return [
        (shape["y0"], shape["y1"]) if shape["y0"] == shape["y1"] else (shape["x0"], shape["x1"])
        for shape in shapes
    ]


def test_ablation_has_a_bar_per_unit_and_objective_in_model_order() -> None:
    figure = charts.ablation_figure(search())
    acceptance, metric = figure.data
    assert list(acceptance.x) == ["a1", "a2", "a3"]
    assert list(acceptance.y) == pytest.approx([0.05, 0.1, -0.01])
    assert list(metric.y) == pytest.approx([-0.01, -0.25, 0.05])
    assert list(acceptance.marker.opacity) == [1.0, 0.4, 1.0]
    assert lines(figure) == [(-0.05, -0.05), (-0.05, -0.05)]


def test_ablation_names_are_categories() -> None:
    blocks = tuple(unit.model_copy(update={"skip": unit.skip[1:]}) for unit in (examples.A1,))
    figure = charts.ablation_figure(search(ablation=blocks))
    assert list(figure.data[0].x) == ["1"]
    assert figure.layout.xaxis.type == "category"


def test_ablation_without_metric_shows_acceptance_alone() -> None:
    dense = examples.DENSE.model_copy(update={"metric": None})
    figure = charts.ablation_figure(search(dense=dense))
    assert [trace.name for trace in figure.data] == ["acceptance change"]


def test_front_sorts_every_scored_configuration_into_one_group() -> None:
    figure = charts.front_figure(search())
    points = {
        trace.name: [
            (name, pytest.approx(x), pytest.approx(y))
            for name, x, y in zip(trace.text, trace.x, trace.y, strict=True)
        ]
        for trace in figure.data
    }
    assert points == {
        "outside tolerance": [("a2", -0.25, 0.1)],
        "within tolerance": [("a1", -0.01, 0.05)],
        "Pareto front": [("a1,a3", 0.02, 0.08), ("a3", 0.05, -0.01)],
        "dense": [("dense", 0.0, 0.0)],
        "answer": [("a1,a3", 0.02, 0.08)],
    }
    assert lines(figure) == [(-0.05, -0.05), (-0.05, -0.05)]


def test_front_without_metric_counts_units() -> None:
    dense = examples.DENSE.model_copy(update={"metric": None})
    figure = charts.front_figure(search(dense=dense, answer=examples.A1_A3))
    answer = next(trace for trace in figure.data if trace.name == "answer")
    assert list(answer.x) == [2.0]
    assert figure.layout.xaxis.title.text == "units skipped"


def test_intervals_are_relative_changes_with_uneven_ends() -> None:
    figure = charts.interval_figure(search())
    found = {
        trace.name: (trace.x[0], trace.error_x.arrayminus[0], trace.error_x.array[0])
        for trace in figure.data
        if trace.name != "tolerance"
    }
    assert found == {
        "acceptance length": pytest.approx((0.05, 0.03, 0.03)),
        "task metric": pytest.approx((-0.05, 0.07, 0.07)),
        "decode speed": pytest.approx((0.1, 0.06, 0.05)),
        "speed over dense without a drafter": pytest.approx((0.6, 0.1, 0.1)),
        "task metric on selection items": pytest.approx((0.02, 0.12, 0.13)),
    }
    limits = [(trace.y[0], trace.x[0]) for trace in figure.data if trace.name == "tolerance"]
    assert sorted(limits) == [("acceptance length", -0.05), ("task metric", -0.05)]


def test_a_plain_difference_on_selection_items_is_left_to_the_table() -> None:
    name = "task metric on selection items"
    drawn = charts.interval_figure(search())
    assert name in {trace.name for trace in drawn.data}
    plain = charts.interval_figure(search(selection_metric_change_kind="difference"))
    assert name not in {trace.name for trace in plain.data}


def test_depth_bars() -> None:
    figure = charts.depth_figure(Depth((0.5, 0.0), (0.75, 0.25), 4, 4))
    assert [(trace.name, list(trace.x), list(trace.y)) for trace in figure.data] == [
        ("dense (4 steps)", ["1", "2"], [0.5, 0.0]),
        ("sparse (4 steps)", ["1", "2"], [0.75, 0.25]),
    ]


def test_hostile_names_stay_text() -> None:
    hostile = ConfigurationRow(
        skip=examples.HOSTILE, level=1, rank=1, acceptance=2.0, metric=0.2, gain_acceptance=0.0,
        gain_metric=0.0,
    )  # fmt: skip
    level = LevelTable(number=1, rows=(hostile,))
    shown = search(ablation=(hostile,), levels=(level,), front=(hostile,))
    for figure in (charts.ablation_figure(shown), charts.front_figure(shown)):
        assert "<" not in charts.to_json(figure).replace("<extra></extra>", "")
        assert "\\u003cscript" not in charts.to_json(figure)


def test_empty_search_gives_empty_figures() -> None:
    empty = search(levels=(), ablation=(), front=(), heldout=None, selection_metric_change=None)
    assert list(charts.ablation_figure(empty).data[0].x) == []
    assert charts.interval_figure(empty).data == ()
    assert [len(trace.x) for trace in charts.front_figure(empty).data] == [0, 0, 0, 1, 1]

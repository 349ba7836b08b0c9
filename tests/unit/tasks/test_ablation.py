"""Curves of an ablation: found in a report by their methods, compared at equal overhead."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.cells import BenchmarkCell, CellFigures
from flows.benchmark_tables import benchmark_tables
from specdec_core.config.ablation import OVERHEAD_CURVES, PTD_SWEEPS
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.presets import benchmark_config
from specdec_core.records import PhaseSeconds
from tasks.ablation import at_equal_overhead, overhead_curves, sweep_curves
from tasks.benchmark_report import BenchmarkReport, MethodOverall
from tasks.plots import plot_report
from tests.integration import store_examples as examples


def figures(drafting: float, candidates: float, efficiency: float) -> CellFigures:
    return CellFigures(
        num_items=2,
        num_tokens=100,
        num_steps=50,
        acceptance_length=efficiency,
        decoding_efficiency=efficiency,
        hit_rate=0.9,
        acceptance_length_on_hits=efficiency + 0.1,
        position_acceptance=(0.6, 0.3),
        drafting_nodes_per_step=drafting,
        candidate_nodes_per_step=candidates,
        phases=PhaseSeconds(draft=0.1, forward=1.0, verify=0.1, commit=0.1),
        tokens_per_s=50.0,
    )


def report(methods: dict[str, CellFigures]) -> BenchmarkReport:
    """Two rows in which every method has the same figures."""
    names = {format_drafter(parse_drafter(text)): found for text, found in methods.items()}
    cells: list[BenchmarkCell] = [
        examples.cell("r", domain=row, drafter=name, figures=found)
        for row in ("chat@s#writing", "chat@s#math")
        for name, found in names.items()
    ]
    overall = tuple(
        MethodOverall(
            drafter=name,
            level="up-to-ties",
            num_rows=2,
            figures=found,
            mean_speedup=examples.heldout().speedup,
        )
        for name, found in names.items()
    )
    return BenchmarkReport(
        run_id="r",
        config=benchmark_config({"preset": "ptd-ablation"}),
        cells=tuple(cells),
        overall=overall,
        num_evaluated=0,
        num_memoised=0,
    )


WIDTHS = {f"ptd:width={w}": figures(10.0 * w, 20.0, 1.5 + 0.1 * w) for w in (2, 4)}


def test_a_curve_needs_two_points_and_finds_the_default_under_its_short_name() -> None:
    (curve,) = sweep_curves(report(WIDTHS))
    assert curve.sweep.name == "width"
    assert [(p.label, p.method.drafter) for p in curve.points] == [
        ("2", "ptd:width=2"),
        ("4", "ptd"),
    ]
    assert [p.nodes_per_step for p in curve.points] == [40.0, 60.0]
    assert sweep_curves(report({"ptd": figures(1.0, 1.0, 1.0)})) == ()


def test_at_equal_overhead_both_fronts_are_read_at_the_others_points() -> None:
    ptd, lookahead, self_draft = OVERHEAD_CURVES
    methods = {
        # PTD: 2.0 tokens per step at 40 nodes, 3.0 at 80.
        ptd.methods[0]: figures(30.0, 10.0, 2.0),
        ptd.methods[1]: figures(50.0, 30.0, 3.0),
        # At 60 nodes PTD has 2.5 and this 2.0. At 80 PTD has 3.0; the setting of 2.0 there is below
        # the front from 60 to 200 nodes, which has 2.0 + 20 / 140 * 3.5. 200 lies outside PTD's.
        lookahead.methods[0]: figures(40.0, 20.0, 2.0),
        lookahead.methods[1]: figures(40.0, 40.0, 2.0),
        lookahead.methods[2]: figures(100.0, 100.0, 5.5),
        self_draft.methods[0]: figures(1.0, 1.0, 1.1),
        self_draft.methods[1]: figures(2.0, 1.0, 1.2),
    }
    curves = overhead_curves(report(methods))
    assert [curve.sweep.name for curve in curves] == ["ptd", "lookahead", "self-draft"]
    (compared,) = at_equal_overhead(curves)
    assert (compared.name, compared.nodes) == ("Lookahead", (60.0, 80.0))
    assert compared.ratio == pytest.approx((2.5 / 2.0 + 3.0 / 2.5) / 2)


def test_without_ptd_nothing_is_compared() -> None:
    _, lookahead, self_draft = OVERHEAD_CURVES
    methods = (*lookahead.methods[:2], *self_draft.methods[:2])
    found = overhead_curves(report({text: figures(1.0, 1.0, 1.0) for text in methods}))
    assert found == ()
    assert at_equal_overhead(found) == ()


def test_every_method_of_the_ablation_is_one_that_exists_and_occurs_in_its_preset() -> None:
    config = benchmark_config({"preset": "ptd-ablation"})
    for sweep in (*PTD_SWEEPS, *OVERHEAD_CURVES):
        for text in sweep.methods:
            assert format_drafter(parse_drafter(text)) in config.methods


def test_all_curves_are_drawn_and_told_in_tables(tmp_path: Path) -> None:
    sweeps = (*PTD_SWEEPS, *OVERHEAD_CURVES)
    methods = {
        text: figures(10.0 + number % 4, 20.0, 1.5 + 0.01 * number)
        for number, text in enumerate(text for sweep in sweeps for text in sweep.methods)
    }
    made = report(methods)
    names = {path.name for path in plot_report(made, tmp_path / "plots")}
    assert names == {
        "speedup.png",
        "run-time.png",
        *(f"ablation-{sweep.name}.png" for sweep in PTD_SWEEPS),
        *(f"ablation-{name}-by-row.png" for name in ("init", "expansion", "profile")),
        "equal-overhead.png",
    }
    titles = [table.title for table in benchmark_tables(made)]
    assert "Ablation: first tokens of the forest" in titles
    assert "Efficiency (DE) by domain: first tokens of the forest" in titles
    assert "PTD at equal overhead: ratio of decoding efficiencies" in titles

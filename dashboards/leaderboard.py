"""Methods of a benchmark run side by side: what was measured, and what is proven about outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.queries import BENCHMARK_KINDS, NUM_RUNS
from dashboards.views import (
    ABSENT,
    Cell,
    Table,
    change_cells,
    flag_cell,
    named_columns,
    number_cell,
    text_cell,
)
from db.api.problems import not_found
from db.cells import BenchmarkCell, CellFigures, Certificate
from db.schemas import RunRecord
from db.store import Store
from specdec_core.config.dtype import type_label

_COLOURS = ("#2f7fd1", "#d9772b", "#2f9e6b", "#c2377e", "#7d5fd3", "#8a6d1f", "#1b8ea3", "#7b8794")


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """One benchmark run with its cells, and the latest runs to choose from, newest first."""

    run: RunRecord
    cells: tuple[BenchmarkCell, ...]
    runs: tuple[RunRecord, ...]


def load_leaderboard(store: Store, run_id: str | None) -> Leaderboard | None:
    """Return the run asked for, else the newest completed benchmark; None if there is none.

    Raises:
        ProblemError: 404 if the run asked for is not stored.
        StoreError: if the database cannot be read.
    """
    runs = _latest_runs(store)
    if run_id is None:
        run = next((run for run in runs if run.status == "completed"), None)
        if run is None:
            return None
    else:
        run = store.runs.get(run_id)
        if run is None:
            raise not_found("run", run_id)
    return Leaderboard(run, tuple(store.benchmarks.list(run_id=run.id)), tuple(runs))


def leaderboard_table(cells: Iterable[BenchmarkCell]) -> Table:
    """Every cell; lossy and synthetic methods are marked in their name and in columns."""
    titles = {
        "domain": "domain",
        "drafter": "drafter",
        "dtype": "type",
        "sampling": "sampling",
        "is_lossless": "output",
        "is_synthetic": "acceptance",
        "level": "proven",
        "identical": "identical outputs",
        "ties": "ties",
        "defects": "defects",
        "tokens_per_s": "tokens/s",
        "speedup": "speed-up",
        "speedup_low": "95 % low",
        "speedup_high": "95 % high",
        "speedup_of_mean_rates": "speed-up, Spec-Bench's",
        "acceptance_length": "acceptance length",
        "hit_rate": "hit rate",
        "decoding_efficiency": "decoding efficiency",
        "drafting_nodes": "drafting nodes/step",
        "candidate_nodes": "candidate nodes/step",
        "overhead_share": "time outside forwards",
        "metric": "metric",
        "error": "error",
    }
    columns = named_columns(**titles)
    caption = "Methods by domain, batch 1, against autoregressive decoding"
    return Table("leaderboard", caption, columns, tuple(_row(cell) for cell in cells))


def speedup_figure(cells: Sequence[BenchmarkCell]) -> go.Figure | None:
    """Speed-up with interval by domain and method; None where nothing was compared."""
    shown = [cell for cell in cells if cell.figures is not None and cell.figures.speedup]
    if not shown:
        return None
    methods = list(dict.fromkeys(cell.method for cell in shown))
    domains = list(dict.fromkeys(cell.domain for cell in shown))
    figure = go.Figure(
        [
            _bars(method, [c for c in shown if c.method == method], _COLOURS[i % len(_COLOURS)])
            for i, method in enumerate(methods)
        ]
    )
    figure.add_vline(x=1.0, line={"color": "#7b8794", "width": 1})
    figure.update_xaxes(title_text="speed-up over autoregressive decoding, 95 % interval")
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=domains[::-1])
    figure.update_layout(
        template="none",
        barmode="group",
        height=120 + 18 * len(shown) + 14 * len(domains),
        margin={"l": 60, "r": 16, "t": 16, "b": 48},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_yaxes(automargin=True)
    return figure


def _latest_runs(store: Store) -> list[RunRecord]:
    found = [run for kind in BENCHMARK_KINDS for run in store.runs.list(kind=kind, limit=NUM_RUNS)]
    return sorted(found, key=lambda run: run.created_at, reverse=True)[:NUM_RUNS]


def _row(cell: BenchmarkCell) -> tuple[Cell, ...]:
    figures = cell.figures
    return (
        text_cell(cell.domain),
        Cell(cell.drafter, cell.method),
        Cell(cell.dtype, type_label(cell.dtype)),
        text_cell(cell.sampling or "greedy"),
        flag_cell(cell.is_lossless, "lossless", "lossy"),
        flag_cell(cell.is_synthetic, "synthetic", "measured"),
        *_proof(cell.certificate),
        *_speed(figures),
        number_cell(figures.acceptance_length if figures else None),
        number_cell(figures.hit_rate if figures else None),
        number_cell(figures.decoding_efficiency if figures else None),
        number_cell(figures.drafting_nodes_per_step if figures else None, 1),
        number_cell(figures.candidate_nodes_per_step if figures else None, 1),
        number_cell(figures.overhead_share if figures else None),
        number_cell(figures.metric if figures else None, 4),
        text_cell(cell.error),
    )


def _proof(certificate: Certificate | None) -> tuple[Cell, ...]:
    if certificate is None:
        return (text_cell(None), text_cell(None), number_cell(None), number_cell(None))
    share = certificate.num_identical / certificate.num_items
    return (
        text_cell(certificate.level),
        Cell(share, f"{certificate.num_identical}/{certificate.num_items}", is_number=True),
        Cell(certificate.num_ties, str(certificate.num_ties), is_number=True),
        Cell(certificate.num_defects, str(certificate.num_defects), is_number=True),
    )


def _speed(figures: CellFigures | None) -> tuple[Cell, ...]:
    ratio = figures.speedup_of_mean_rates if figures else None
    return (
        number_cell(figures.tokens_per_s if figures else None, 1),
        *change_cells(figures.speedup if figures else None, "ratio"),
        Cell(ratio, ABSENT if ratio is None else f"{ratio:.3f}x", is_number=True),
    )


def _bars(method: str, cells: Sequence[BenchmarkCell], colour: str) -> go.Bar:
    speedups = [cell.figures.speedup for cell in cells if cell.figures and cell.figures.speedup]
    return go.Bar(
        orientation="h",
        name=method,
        x=[each.estimate for each in speedups],
        y=[cell.domain for cell in cells],
        marker={"color": colour, "opacity": 1.0 if _is_plain(cells) else 0.5},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.estimate for each in speedups],
            "arrayminus": [each.estimate - each.low for each in speedups],
            "thickness": 1.5,
            "width": 3,
        },
        hovertemplate=f"{method}: %{{x:.3f}}x<extra></extra>",
    )


def _is_plain(cells: Sequence[BenchmarkCell]) -> bool:
    return all(cell.is_lossless and not cell.is_synthetic for cell in cells)

"""Draft training as tables and charts: the acceptance that counts beside the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.charts import ACCEPTANCE, ANSWER, METRIC, NEUTRAL, finish
from dashboards.training import DepthRow, TrainingPage
from dashboards.views import (
    Cell,
    Table,
    change_cells,
    flag_cell,
    moment,
    named_columns,
    number_cell,
    percent_cell,
    share_cell,
    text_cell,
)
from db.training import TrainingPoint

_COLOURS = {"greedy": ACCEPTANCE, "sampling": METRIC}
_MANY_POINTS = 60


def checkpoints_table(page: TrainingPage) -> Table:
    """Every checkpoint, newest first."""
    titles = {
        "id": "id",
        "draft": "draft",
        "target": "target",
        "loss": "loss",
        "seed": "seed",
        "step": "step",
        "criterion": "chosen by",
        "expected_length": "expected acceptance length",
        "realised_length": "realised",
        "state": "state",
        "exports": "exports",
        "created_at": "date",
        "run_id": "run",
        "content_hash": "content",
    }
    rows = tuple(
        (
            Cell(one.id, str(one.id), is_number=True),
            *map(text_cell, (one.draft, one.target, one.loss)),
            *(Cell(value, str(value), is_number=True) for value in (one.seed, one.step)),
            text_cell(one.criterion),
            number_cell(one.expected_length),
            number_cell(one.realised_length),
            text_cell(one.state),
            Cell(len(one.exports), str(len(one.exports)), is_number=True),
            Cell(one.created_at.isoformat(), moment(one.created_at)),
            Cell(one.run_id, one.run_id[:12]),
            Cell(one.content_hash, one.content_hash[:12]),
        )
        for one in page.checkpoints
    )
    return Table("checkpoints", "Draft checkpoints, newest first", named_columns(**titles), rows)


def curve_table(page: TrainingPage) -> Table:
    """Every point of the selected training's curve."""
    titles = {
        "step": "step",
        "phase": "phase",
        "seconds": "seconds",
        "loss": "training loss",
        "validation_loss": "validation loss",
        "greedy": "expected length, greedy",
        "sampling": "expected length, sampling",
        "learning_rate": "learning rate",
        "tokens_per_s": "tokens/s",
        "is_best": "best so far",
    }
    points = page.training.curve if page.training else ()
    rows = tuple(
        (
            *(Cell(value, str(value), is_number=True) for value in (point.step, point.phase)),
            number_cell(point.seconds, 1),
            number_cell(point.loss, 4),
            number_cell(point.validation_loss, 4),
            number_cell(point.greedy.length if point.greedy else None),
            number_cell(point.sampling.length if point.sampling else None),
            number_cell(point.learning_rate, 7),
            number_cell(point.tokens_per_s, 0),
            flag_cell(point.is_best, "yes", ""),
        )
        for point in points
    )
    return Table("curve", "Training, point by point", named_columns(**titles), rows)


def agreement_table(page: TrainingPage) -> Table:
    """Expected and realised acceptance of every depth of every cell."""
    titles = {
        "domain": "domain",
        "shape": "shape",
        "temperature": "temperature",
        "depth": "depth",
        "num_trials": "steps that got there",
        "expected": "expected at these steps",
        "realised": "realised",
        "gap": "gap",
        "agrees": "agrees",
    }
    rows = tuple(
        (
            *map(text_cell, (cell.domain, cell.shape)),
            number_cell(cell.temperature, 1),
            *(Cell(n, str(n), is_number=True) for n in (each.depth, each.num_trials)),
            share_cell(each.expected),
            share_cell(each.realised),
            percent_cell(each.realised - each.expected),
            text_cell(_verdict(each)),
        )
        for cell in (page.evaluation.cells if page.evaluation else ())
        for each in cell.depths
    )
    caption = "Accepted, given the depth before: expected and realised"
    return Table("agreement", caption, named_columns(**titles), rows)


def decoding_table(page: TrainingPage) -> Table:
    """Every cell of the evaluation."""
    titles = {
        "domain": "domain",
        "shape": "shape",
        "temperature": "temperature",
        "accepted_per_step": "accepted tokens/step",
        "tokens_per_s": "tokens/s",
        "speedup": "speed-up",
        "speedup_low": "95 % low",
        "speedup_high": "95 % high",
        "error": "error",
    }
    rows = tuple(
        (
            *map(text_cell, (cell.domain, cell.shape)),
            number_cell(cell.temperature, 1),
            number_cell(cell.accepted_per_step),
            number_cell(cell.figures.tokens_per_s if cell.figures else None, 1),
            *change_cells(cell.figures.speedup if cell.figures else None, "ratio"),
            text_cell(cell.error),
        )
        for cell in (page.evaluation.cells if page.evaluation else ())
    )
    caption = "In the decode loop, bonus tokens left out, beside autoregressive decoding"
    return Table("decoding", caption, named_columns(**titles), rows)


TRAINING_TABLES: Mapping[str, Callable[[TrainingPage], Table]] = {
    "checkpoints": checkpoints_table,
    "curve": curve_table,
    "agreement": agreement_table,
    "decoding": decoding_table,
}


def curve_figure(page: TrainingPage) -> go.Figure | None:
    """Losses above expected acceptance length; None before there is a point."""
    points = page.training.curve if page.training else ()
    if not points:
        return None
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    losses = {"training loss": ("loss", NEUTRAL), "validation loss": ("validation_loss", ANSWER)}
    for name, (field, colour) in losses.items():
        figure.add_trace(_line(name, colour, _values(points, field)), row=1, col=1)
    for name in ("greedy", "sampling"):
        lengths = [
            (point.step, found.length)
            for point in points
            if (found := point.greedy if name == "greedy" else point.sampling) is not None
        ]
        figure.add_trace(_line(f"expected, {name}", _COLOURS[name], lengths), row=2, col=1)
    one = page.checkpoint
    if one is not None and one.realised_length is not None:
        dash = {"color": _COLOURS[one.criterion], "dash": "dash", "width": 1.5}
        figure.add_hline(y=one.realised_length, line=dash, row=2, col=1)
    if one is not None:
        figure.add_vline(x=one.step, line={"color": NEUTRAL, "dash": "dot", "width": 1})
    figure.update_yaxes(title_text="loss", row=1, col=1)
    figure.update_yaxes(title_text="acceptance length", row=2, col=1)
    figure.update_xaxes(title_text="step", row=2, col=1)
    finish(figure, height=460)
    return figure


def depth_figure(page: TrainingPage) -> go.Figure | None:
    """Expected and realised acceptance by depth; None before anything was validated."""
    one = page.checkpoint
    if one is None or not one.expected_acceptance:
        return None
    series = {"expected on validation responses": (NEUTRAL, one.expected_acceptance)}
    if one.realised_acceptance:
        series["realised in the decode loop"] = (ACCEPTANCE, one.realised_acceptance)
    figure = go.Figure(
        [_line(name, colour, enumerate(shares, 1)) for name, (colour, shares) in series.items()]
    )
    figure.update_xaxes(title_text="draft depth", dtick=1)
    figure.update_yaxes(
        title_text=f"accepted ({one.criterion})", tickformat=".0%", rangemode="tozero"
    )
    finish(figure, height=300)
    return figure


def _verdict(row: DepthRow) -> str:
    if not row.is_checked:
        return "not compared"
    return "yes" if row.is_agreed else "no"


def _values(points: Sequence[TrainingPoint], field: str) -> list[tuple[int, float]]:
    return [(p.step, getattr(p, field)) for p in points if getattr(p, field) is not None]


def _line(name: str, colour: str, points: Iterable[tuple[int, float]]) -> go.Scatter:
    shown = list(points)
    return go.Scatter(
        x=[x for x, _ in shown],
        y=[y for _, y in shown],
        name=name,
        mode="lines+markers" if len(shown) < _MANY_POINTS else "lines",
        line={"color": colour, "width": 1.5},
        hovertemplate=f"{name}, %{{x}}: %{{y:.4g}}<extra></extra>",
    )

"""Plots of trainings and of comparisons of losses; every figure in them is also in a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from db.training import TrainingPoint
from tasks.loss_report import LossReport, LossTraining
from tasks.plot_style import (
    NEUTRAL,
    Plot,
    draw_interval,
    draw_legend,
    new_figure,
    new_lines,
    new_panels,
    style_of,
)
from tasks.training_report import TrainingReport, realised_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CRITERIA = ("greedy", "sampling")


def training_plots(report: TrainingReport) -> Iterator[Plot]:
    """Yield the plots that a training has figures for."""
    yield "curve", lambda: _curve(report)
    if report.evaluation is not None and report.checkpoint.realised_acceptance:
        yield "depth", lambda: _depth(report)


def loss_plots(report: LossReport) -> Iterator[Plot]:
    """Yield the plots that a comparison has figures for."""
    trained = [each for each in report.trainings if each.curve]
    if trained:
        yield "curves", lambda: _curves(trained)
    if report.changes_against(report.config.losses[0]):
        yield "changes", lambda: _changes(report)


def _curve(report: TrainingReport) -> Figure:
    """Loss above expected acceptance length, which chooses the checkpoint."""
    figure, (upper, lower) = new_panels(2, width=7.5, height=5.4)
    steps = [point for point in report.curve if point.loss is not None]
    validated = [point for point in report.curve if point.validation_loss is not None]
    plain = {**style_of(0), "marker": ""}
    upper.plot([p.step for p in steps], [p.loss for p in steps], label="training loss", **plain)
    upper.plot(
        [p.step for p in validated],
        [p.validation_loss for p in validated],
        label="validation loss",
        **style_of(1),
    )
    upper.set_ylabel(report.losses, fontsize=8)
    for number, criterion in enumerate(_CRITERIA, start=2):
        style = style_of(number)
        _expected(lower, report.curve, criterion, f"expected, {criterion}", style)
    best = report.outcome.best.step
    for axes in (upper, lower):
        axes.axvline(best, color=NEUTRAL, linewidth=1, linestyle=":")
    realised = report.checkpoint.realised_length
    if realised is not None:
        label = f"realised, {report.checkpoint.criterion}"
        lower.axhline(realised, color=NEUTRAL, linewidth=1.2, linestyle="--", label=label)
    lower.set_ylabel("acceptance length")
    lower.set_xlabel("step (dotted: the checkpoint kept)")
    handles = [upper.get_legend_handles_labels(), lower.get_legend_handles_labels()]
    figure.legend(
        [each for found, _ in handles for each in found],
        [name for _, names in handles for name in names],
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
    )
    return figure


def _expected(
    axes: Any, curve: Sequence[TrainingPoint], criterion: Any, label: str, style: dict[str, Any]
) -> None:
    shown = [
        (point.step, found.length)
        for point in curve
        if (found := point.expected(criterion)) is not None
    ]
    axes.plot([step for step, _ in shown], [length for _, length in shown], label=label, **style)


def _depth(report: TrainingReport) -> Figure:
    """Chance of a depth given the one before: on validation data, at the steps, and realised."""
    figure, axes = new_figure()
    one = report.checkpoint
    assert report.evaluation is not None
    realised = realised_of(report.evaluation, one.criterion, report.config.train.temperature)
    series = [("expected on validation responses", one.expected_acceptance)]
    if realised is not None:
        series.append(("expected at the steps of the decode loop", realised.expected))
        series.append(("realised in the decode loop", realised.by_depth))
    for number, (label, chances) in enumerate(series):
        axes.plot(range(1, len(chances) + 1), chances, label=label, **style_of(number))
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("draft depth")
    axes.set_ylabel(f"accepted, given the depth before ({one.criterion})")
    draw_legend(axes)
    return figure


def _curves(trainings: Sequence[LossTraining]) -> Figure:
    """Expected acceptance length over steps by loss, mean over seeds, by both criteria."""
    figure, panels = new_panels(2, width=10.0, height=4.2, is_stacked=False)
    losses = list(dict.fromkeys(each.loss for each in trainings))
    for axes, criterion in zip(panels, _CRITERIA, strict=True):
        for number, loss in enumerate(losses):
            lengths: dict[int, list[float]] = defaultdict(list)
            for point in (p for each in trainings if each.loss == loss for p in each.curve):
                found = point.greedy if criterion == "greedy" else point.sampling
                if found is not None:
                    lengths[point.step].append(found.length)
            steps = sorted(lengths)
            means = [sum(lengths[step]) / len(lengths[step]) for step in steps]
            label = loss if axes is panels[0] else None
            axes.plot(steps, means, label=label, **style_of(number))
        axes.set_xlabel("step")
        axes.set_title(criterion, fontsize=9)
    panels[0].set_ylabel("expected acceptance length")
    draw_legend(panels[0])
    return figure


def _changes(report: LossReport) -> Figure:
    """Paired changes against the first loss, a line per loss and setting."""
    base = report.config.losses[0]
    shown = [each for each in report.changes_against(base) if each.accepted is not None]
    shown.sort(key=lambda each: (each.shape, each.temperature), reverse=True)
    names = [
        f"{each.loss}, {each.shape}, T={each.temperature:g}"
        + (f" ({each.reading})" if each.reading == "too few prompts" else "")
        for each in shown
    ]
    figure, axes = new_lines(names)
    losses = list(report.config.losses)
    for y, each in enumerate(shown):
        assert each.accepted is not None
        draw_interval(axes, each.accepted, y, style_of(losses.index(each.loss)), None)
    axes.axvline(0.0, color=NEUTRAL, linewidth=1)
    axes.set_xlabel(f"change of accepted tokens per step against {base}, 95 % interval")
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:+.0%}")
    return figure

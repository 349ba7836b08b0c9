"""How plots look, and how they become files: shared by benchmarks, searches and comparisons."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db.schemas import Interval
from tasks.run_files import make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEUTRAL = "#718096"
_GRID = "#e2e8f0"
_LEGEND_CHARACTERS = 110  # of one line below a figure of the usual width
_LEGEND_HANDLE = 8  # what a marker and its space take of them
_COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#b83280", "#6b46c1", "#744210", "#0987a0", "#4a5568")
_MARKERS = "osD^v<>P"
_DPI = 120

Plot = tuple[str, Callable[[], "Figure"]]
"""Stem of the file, and what draws it."""


def write_plots(plots: Iterable[Plot], folder: Path) -> tuple[Path, ...]:
    """Draw plots into PNG files named by them; return the files.

    Args:
        plots: What to draw.
        folder: Where files go; made if something is written.
    """
    paths = []
    for name, draw in plots:
        path = make_folder(folder) / f"{name}.png"
        draw().savefig(path, dpi=_DPI)
        paths.append(path)
    return tuple(paths)


def png_of(plot: Plot) -> bytes:
    """Return a plot as the bytes of its PNG file."""
    file = io.BytesIO()
    plot[1]().savefig(file, dpi=_DPI, format="png")
    return file.getvalue()


def new_figure(width: float = 7.5, height: float = 4.2) -> tuple[Figure, Any]:
    """Return an empty figure with its axes; sizes in inches."""
    figure, (axes,) = new_panels(1, width, height)
    return figure, axes


def new_panels(
    count: int, width: float, height: float, *, is_stacked: bool = True
) -> tuple[Figure, list[Any]]:
    """Return a figure of some axes, one below the other with one x axis, or side by side.

    Args:
        count: Panels.
        width: Of the whole figure, inches.
        height: The same, inches.
        is_stacked: Whether panels lie below each other; else they share their y axis.
    """
    from matplotlib.figure import Figure  # slow to import, and only needed once something is drawn

    figure = Figure(figsize=(min(width, 40.0), min(height, 40.0)), layout="constrained")
    rows, columns = (count, 1) if is_stacked else (1, count)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=is_stacked, sharey=not is_stacked)
    panels = list(grid.flat)
    for axes in panels:
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure, panels


def new_lines(names: Sequence[str]) -> tuple[Figure, Any]:
    """Return a figure with a line for each name, wide enough for all of them."""
    longest = max(map(len, names), default=0)
    figure, axes = new_figure(width=5.0 + 0.065 * longest, height=1.6 + 0.24 * len(names))
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.margins(y=0.02)
    return figure, axes


def draw_interval(
    axes: Any, interval: Interval, y: float, style: dict[str, Any], label: str | None
) -> None:
    """Draw an estimate with its interval on the line `y`."""
    ends = [[interval.estimate - interval.low], [interval.high - interval.estimate]]
    style = style | {"linestyle": "", "label": label}
    axes.errorbar([interval.estimate], [y], xerr=ends, capsize=2, **style)


def style_of(number: int) -> dict[str, Any]:
    """Return colour, marker and widths of the series with this number."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "markersize": 5,
        "linewidth": 1.5,
    }


def draw_legend(axes: Any) -> None:
    """Below the axes, where it hides no point, in as many columns as its longest label allows."""
    longest = max(map(len, axes.get_legend_handles_labels()[1]), default=0)
    columns = max(1, min(4, _LEGEND_CHARACTERS // (longest + _LEGEND_HANDLE)))
    axes.figure.legend(loc="outside lower center", ncols=columns, fontsize=8, frameon=False)

"""The layer ablation chart as SVG, small enough to travel inside a Prefect artifact."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from tasks.report import ConfigurationRow

_BAR_WIDTH, _GAP, _LEFT, _TOP, _PLOT_HEIGHT = 9, 8, 56, 40, 150
_LEGEND_WIDTH = 560
_SCALE_LIMIT = 0.5
_SERIES = (("acceptance", "#2b6cb0"), ("metric", "#c05621"))


def ablation_svg(rows: Sequence[ConfigurationRow], tolerance: float) -> str:
    """Return bars of both relative changes for each single unit.

    Args:
        rows: Single units, in the order of the model.
        tolerance: Signed relative slack, drawn as a dashed line.

    Bars are cut at plus and minus 50 per cent; the figures themselves are in the table.
    """
    step = 2 * _BAR_WIDTH + _GAP
    width = max(_LEFT + step * len(rows) + 20, _LEGEND_WIDTH)
    height = _TOP + _PLOT_HEIGHT + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(),
        *_scale(width),
    ]
    for index, row in enumerate(rows):
        parts += _unit(row, _LEFT + index * step + _GAP / 2)
    parts.append(_line(tolerance, width, 'stroke="#718096" stroke-dasharray="4 3"'))
    parts.append("</svg>")
    return "".join(parts)


def data_uri(svg: str) -> str:
    """Return an image address that holds the image itself."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _y(value: float) -> float:
    cut = max(-_SCALE_LIMIT, min(_SCALE_LIMIT, value))
    return _TOP + _PLOT_HEIGHT * (_SCALE_LIMIT - cut) / (2 * _SCALE_LIMIT)


def _legend() -> list[str]:
    parts = []
    for number, (name, colour) in enumerate(_SERIES):
        x = _LEFT + 140 * number
        parts.append(f'<rect x="{x}" y="12" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="21">{name} vs dense</text>')
    parts.append(f'<text x="{_LEFT + 280}" y="21">dashed: tolerance; bold: within it</text>')
    return parts


def _scale(width: float) -> list[str]:
    parts = []
    for value in (-0.5, -0.25, 0.0, 0.25, 0.5):
        colour = "#1a202c" if value == 0.0 else "#e2e8f0"
        parts.append(_line(value, width, f'stroke="{colour}"'))
        parts.append(f'<text x="4" y="{_y(value) + 4:.1f}">{value:+.0%}</text>')
    return parts


def _line(value: float, width: float, style: str) -> str:
    y = _y(value)
    return f'<line x1="{_LEFT - 6}" y1="{y:.1f}" x2="{width - 10}" y2="{y:.1f}" {style}/>'


def _unit(row: ConfigurationRow, x: float) -> list[str]:
    parts = []
    gains = (row.gain_acceptance, row.gain_metric)
    for number, (gain, (name, colour)) in enumerate(zip(gains, _SERIES, strict=True)):
        if gain is None:
            continue
        top, bottom = sorted((_y(gain), _y(0.0)))
        parts.append(
            f'<rect x="{x + number * _BAR_WIDTH:.1f}" y="{top:.1f}" width="{_BAR_WIDTH}" '
            f'height="{max(bottom - top, 0.5):.1f}" fill="{colour}">'
            f"<title>{escape(row.skip)}: {name} {gain:+.1%}</title></rect>"
        )
    middle, base = x + _BAR_WIDTH, _TOP + _PLOT_HEIGHT + 12
    weight = ' font-weight="bold"' if row.is_feasible else ""
    parts.append(
        f'<text x="{middle:.1f}" y="{base}" text-anchor="end"{weight} '
        f'transform="rotate(-60 {middle:.1f} {base})">{escape(row.skip)}</text>'
    )
    return parts

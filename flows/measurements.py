"""Calibrations and benchmarks for people: tables for the terminal and for Prefect's pages."""

from __future__ import annotations

from db.schemas import BenchmarkCell, CalibrationRecord
from flows.views import ABSENT, TableView, number, ratio
from tasks.benchmark import BenchmarkReport


def curve_table(record: CalibrationRecord) -> TableView:
    """Step time over the number of nodes per forward, and what a node adds."""
    base = record.curve[0].median_s
    return TableView(
        f"Step time of {record.target} ({record.dtype}, {record.hardware}), "
        f"{record.context_tokens} tokens of context",
        ("nodes per forward", "median, ms", "relative to the first", "repeats"),
        tuple(
            (
                str(point.num_nodes),
                number(1000 * point.median_s, 2),
                f"{point.median_s / base:.2f}x",
                str(len(point.seconds)) if point.seconds else ABSENT,
            )
            for point in record.curve
        ),
    )


def layer_table(record: CalibrationRecord) -> TableView:
    """How little each half of each layer changes its input: 1 is nothing at all."""
    return TableView(
        "Layers: cosine of input and output",
        ("layer", "attention half", "MLP half"),
        tuple(
            (
                str(layer.layer),
                number(layer.attention_similarity, 4),
                number(layer.mlp_similarity, 4),
            )
            for layer in record.layers
        ),
    )


def cell_table(report: BenchmarkReport) -> TableView:
    """Every cell: speed, speed-up over autoregressive decoding with interval, acceptance."""
    return TableView(
        f"{report.config.target}: {report.config.num_items} items per domain, batch 1, "
        f"{report.config.repeats} repeats",
        (
            "domain",
            "drafter",
            "tokens/s",
            "speed-up [95% interval]",
            "acceptance length",
            "metric",
            "identical output",
        ),
        tuple(_cell_row(cell) for cell in report.cells),
    )


def difference_table(report: BenchmarkReport) -> TableView:
    """Every output that is not the autoregressive one, and whether rounding explains it."""
    return TableView(
        "Outputs that differ from autoregressive decoding",
        ("domain", "drafter", "item", "first difference, output position", "logit gap", "kind"),
        tuple(
            (
                cell.domain,
                cell.drafter,
                found.item_id,
                str(found.position),
                number(found.gap, 6),
                found.kind,
            )
            for cell in report.cells
            if cell.figures is not None
            for found in cell.figures.differences
        ),
    )


def regression_table(report: BenchmarkReport) -> TableView:
    """Figures that fell below the baseline beyond doubt."""
    return TableView(
        f"Regressions against run {report.baseline_run_id or ABSENT}",
        ("domain", "drafter", "figure", "change", "interval"),
        tuple(
            (
                found.domain,
                found.drafter,
                found.measure,
                f"{found.change.estimate:+.1%}",
                f"{found.change.low:+.1%} to {found.change.high:+.1%}",
            )
            for found in report.regressions
        ),
    )


def headline(report: BenchmarkReport) -> str:
    """The result of a benchmark in one sentence."""
    failed = sum(1 for cell in report.cells if cell.status == "failed")
    if report.regressions:
        return f"REGRESSION: {len(report.regressions)} figures fell below the baseline"
    parts = [f"{len(report.cells)} cells measured"]
    if failed:
        parts.append(f"{failed} failed")
    num_defects = sum(cell.figures.num_defects for cell in report.cells if cell.figures)
    if num_defects:
        parts.append(f"{num_defects} outputs differ beyond what rounding explains")
    if report.baseline_run_id is not None:
        parts.append(f"no regression against run {report.baseline_run_id[:8]}")
    return ", ".join(parts)


def benchmark_markdown(report: BenchmarkReport) -> str:
    """Return the whole benchmark as Markdown, an alarm on top if there is one."""
    parts = [f"# {headline(report)}"]
    if report.regressions:
        parts = [f"# ❌ {headline(report)}", regression_table(report).to_markdown()]
    parts.append(cell_table(report).to_markdown())
    differences = difference_table(report)
    if differences.rows:
        parts.append(differences.to_markdown())
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    parts.append(
        f"{report.num_evaluated} evaluations done, {report.num_memoised} answered from the store; "
        f"run {report.run_id}"
    )
    return "\n\n".join(parts)


def _cell_row(cell: BenchmarkCell) -> tuple[str, ...]:
    figures = cell.figures
    if figures is None:
        return cell.domain, cell.drafter, f"failed: {cell.error}", *(ABSENT,) * 4
    counts = {"tie": figures.num_ties, "defect": figures.num_defects}
    others = ", ".join(
        f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count
    )
    same = f"{figures.num_identical}/{figures.num_items}" + (f" ({others})" if others else "")
    return (
        cell.domain,
        cell.drafter,
        number(figures.tokens_per_s, 1),
        ratio(figures.speedup),
        number(figures.acceptance_length),
        number(figures.metric, 4),
        same,
    )

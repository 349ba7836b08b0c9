"""Benchmarks for people: tables for the terminal and for Prefect's pages, and the one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from db.cells import BenchmarkCell, CellFigures, Certificate, Percentiles
from flows.ablation_tables import ablation_tables
from flows.proof_tables import certificate_table, difference_table, regression_table
from flows.views import ABSENT, TableView, number, percent, ratio
from specdec_core.config.dtype import type_label
from tasks.benchmark_report import BenchmarkReport

_PHASES = ("draft", "forward", "verify", "commit")
_PERCENTILES = ("p50", "p90", "p99")
_MAX_POSITIONS = 8


def benchmark_tables(report: BenchmarkReport) -> Iterator[TableView]:
    """Yield every table of a benchmark that has rows, the most asked for first."""
    tables = (
        cell_table(report),
        overall_table(report),
        acceptance_table(report),
        position_table(report),
        time_table(report),
        latency_table(report),
        *ablation_tables(report),
        certificate_table(report),
        difference_table(report),
    )
    yield from (table for table in tables if table.rows)


def cell_table(report: BenchmarkReport) -> TableView:
    """Every cell: speed, speed-up over autoregressive decoding with interval, acceptance, proof."""
    config, sampling = report.config, report.config.sampling or "greedy"
    return TableView(
        f"{config.target} ({type_label(report.dtype)}): {config.num_items} items per domain, "
        f"batch 1, {sampling}, {config.repeats} repeats",
        (
            "domain",
            "drafter",
            "tokens/s",
            "speed-up [95% interval]",
            "speed-up, Spec-Bench's",
            "acceptance length",
            "metric",
            "identical output",
        ),
        tuple(_cell_row(cell) for cell in report.cells),
    )


def overall_table(report: BenchmarkReport) -> TableView:
    """Every method over all rows together; nothing where there is one row."""
    rows = tuple(
        (
            method.method,
            str(method.num_rows),
            ratio(method.mean_speedup),
            ratio(method.figures.speedup),
            number(method.figures.acceptance_length),
            number(method.figures.decoding_efficiency),
            percent(method.figures.overhead_share),
            method.level,
        )
        for method in report.overall
        if method.num_rows > 1
    )
    return TableView(
        "All domains",
        (
            "drafter",
            "domains",
            "mean speed-up of domains [95% interval]",
            "speed-up of all items",
            "acceptance length",
            "decoding efficiency",
            "time outside forwards",
            "outputs",
        ),
        rows,
    )


def acceptance_table(report: BenchmarkReport) -> TableView:
    """How drafts fare: hits, lengths, quartiles, and what a step processes for them."""
    return TableView(
        "Acceptance",
        (
            "domain",
            "drafter",
            "hit rate (HR)",
            "length on hits (AL)",
            "efficiency (DE)",
            "MAT",
            "accepted: median [P25, P75]",
            "drafting nodes/step (Dft)",
            "candidate nodes/step (Ver)",
            "tokens/forward",
        ),
        tuple(
            (
                cell.domain,
                cell.method,
                number(figures.hit_rate),
                number(figures.acceptance_length_on_hits),
                number(figures.decoding_efficiency),
                number(figures.mean_accepted_tokens),
                _quartiles(figures),
                number(figures.drafting_nodes_per_step, 1),
                number(figures.candidate_nodes_per_step, 1),
                number(figures.tokens_per_forward),
            )
            for cell, figures in _drafting(report)
        ),
    )


def position_table(report: BenchmarkReport) -> TableView:
    """Share of the hits that accepted at least k tokens."""
    found = [(cell, each.position_acceptance[:_MAX_POSITIONS]) for cell, each in _drafting(report)]
    deepest = max((len(shares) for _, shares in found), default=0)
    return TableView(
        "Acceptance by position: share of the steps with a draft that accepted at least k tokens",
        ("domain", "drafter", *(str(k) for k in range(1, deepest + 1))),
        tuple(
            (cell.domain, cell.method, *_padded([number(share, 2) for share in shares], deepest))
            for cell, shares in found
        ),
    )


def time_table(report: BenchmarkReport) -> TableView:
    """Where the time of a step goes."""
    return TableView(
        "Time of a step",
        (
            "domain",
            "drafter",
            "ms/step",
            *(f"{phase}, ms" for phase in _PHASES),
            "ms/token",
            "draft share",
            "outside forwards",
            "drift over repeats",
        ),
        tuple(
            (cell.domain, cell.method, *_times(cell.figures))
            for cell in report.cells
            if cell.figures is not None and cell.figures.num_steps
        ),
    )


def latency_table(report: BenchmarkReport) -> TableView:
    """How long single steps take, which is the gap between two bursts, and tokens of a request."""
    return TableView(
        "Latency: percentiles of milliseconds per step, and per token of one request",
        (
            "domain",
            "drafter",
            "steps timed",
            *(f"ms/step {p}" for p in _PERCENTILES),
            "requests timed",
            *(f"ms/token {p}" for p in _PERCENTILES),
        ),
        tuple(
            (
                cell.domain,
                cell.method,
                *_percentiles(cell.figures.step_ms),
                *_percentiles(cell.figures.token_ms),
            )
            for cell in report.cells
            if cell.figures is not None and cell.figures.step_ms is not None
        ),
    )


def headline(report: BenchmarkReport) -> str:
    """The result of a benchmark in one sentence."""
    if report.regressions:
        return f"REGRESSION: {len(report.regressions)} figures fell below the baseline"
    if report.config.verify and report.unsound:
        return f"NOT PROVEN: {len(report.unsound)} of {len(report.cells)} cells"
    parts = [f"{len(report.cells)} cells measured"]
    failed = sum(1 for cell in report.cells if cell.status == "failed")
    if failed:
        parts.append(f"{failed} failed")
    num_defects = sum(cell.certificate.num_defects for cell in report.cells if cell.certificate)
    if num_defects:
        parts.append(f"{num_defects} outputs differ beyond what rounding explains")
    if report.baseline_run_id is not None:
        parts.append(f"no regression against run {report.baseline_run_id[:8]}")
    return ", ".join(parts)


def benchmark_markdown(report: BenchmarkReport) -> str:
    """Return the whole benchmark as Markdown, an alarm on top if there is one."""
    parts = [f"# {headline(report)}"]
    if not report.is_good:
        parts = [f"# ❌ {headline(report)}"]
    if report.regressions:
        parts.append(regression_table(report).to_markdown())
    parts += [table.to_markdown() for table in benchmark_tables(report)]
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    parts.append(
        f"{report.num_evaluated} evaluations done, {report.num_memoised} answered from the store; "
        f"run {report.run_id}"
    )
    return "\n\n".join(parts)


def _drafting(report: BenchmarkReport) -> Iterator[tuple[BenchmarkCell, CellFigures]]:
    """Cells that offered a draft at least once, with their figures."""
    for cell in report.cells:
        if cell.figures is not None and cell.figures.hit_rate:
            yield cell, cell.figures


def _cell_row(cell: BenchmarkCell) -> tuple[str, ...]:
    figures = cell.figures
    if figures is None:
        return cell.domain, cell.method, f"failed: {cell.error}", *(ABSENT,) * 5
    spec_bench = figures.speedup_of_mean_rates
    return (
        cell.domain,
        cell.method,
        number(figures.tokens_per_s, 1),
        ratio(figures.speedup),
        ABSENT if spec_bench is None else f"{spec_bench:.3f}x",
        number(figures.acceptance_length),
        number(figures.metric, 4),
        _identical(cell.certificate),
    )


def _identical(certificate: Certificate | None) -> str:
    if certificate is None:
        return ABSENT
    counts = {"tie": certificate.num_ties, "defect": certificate.num_defects}
    others = ", ".join(
        f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count
    )
    same = f"{certificate.num_identical}/{certificate.num_items}"
    return f"{same} ({others})" if others else same


def _quartiles(figures: CellFigures) -> str:
    middle, low, high = (
        number(value, 1)
        for value in (figures.accepted_median, figures.accepted_p25, figures.accepted_p75)
    )
    return f"{middle} [{low}, {high}]"


def _times(figures: CellFigures) -> tuple[str, ...]:
    phases = figures.phases
    if phases is None:
        return (ABSENT,) * (len(_PHASES) + 5)
    per_step = 1000 / (figures.num_steps * figures.num_repeats)
    per_token = 1000 / figures.tokens_per_s if figures.tokens_per_s else None
    return (
        number(phases.decode * per_step, 2),
        *(number(getattr(phases, phase) * per_step, 2) for phase in _PHASES),
        number(per_token, 2),
        percent(figures.draft_share),
        percent(figures.overhead_share),
        ABSENT if figures.drift is None else f"{figures.drift:+.1%}",
    )


def _percentiles(found: Percentiles | None) -> tuple[str, ...]:
    if found is None:
        return (ABSENT,) * (len(_PERCENTILES) + 1)
    return str(found.num), *(number(getattr(found, name), 2) for name in _PERCENTILES)


def _padded(cells: Sequence[str], width: int) -> tuple[str, ...]:
    return (*cells, *(ABSENT,) * (width - len(cells)))

"""What a benchmark proves, and where it fell behind: tables for the terminal and for Prefect."""

from __future__ import annotations

from db.cells import Certificate
from flows.views import ABSENT, TableView, number
from specdec_core.config.dtype import type_label
from tasks.benchmark_report import BenchmarkReport


def certificate_table(report: BenchmarkReport) -> TableView:
    """What is proven about the outputs of every cell, and by what."""
    return TableView(
        f"Certificates: outputs compared with autoregressive decoding, {type_label(report.dtype)}",
        ("domain", "drafter", "outputs", "identical", "ties", "defects", "tie gap", "distribution"),
        tuple(
            (
                cell.domain,
                cell.method,
                found.level,
                f"{found.num_identical}/{found.num_items}",
                str(found.num_ties),
                str(found.num_defects),
                f"{found.tie_gap:.3g}",
                _law(found),
            )
            for cell in report.cells
            if (found := cell.certificate) is not None and cell.drafter != "none"
        ),
    )


def difference_table(report: BenchmarkReport) -> TableView:
    """Every output that is not the autoregressive one, and whether rounding explains it."""
    return TableView(
        "Outputs that differ from autoregressive decoding",
        ("domain", "drafter", "item", "position", "expected token", "token", "logit gap", "kind"),
        tuple(
            (
                cell.domain,
                cell.method,
                found.item_id,
                str(found.position),
                _token(found.expected_token),
                _token(found.token),
                number(found.gap, 6),
                found.kind,
            )
            for cell in report.cells
            if cell.certificate is not None
            for found in cell.certificate.differences
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


def _law(certificate: Certificate) -> str:
    law = certificate.law
    if law is None:
        return ABSENT
    return f"p = {law.p_value:.2g} of {law.num_draws} draws; control p = {law.control_p_value:.2g}"


def _token(token: int | None) -> str:
    return "end" if token is None else str(token)

"""Strategies side by side, and tolerances in turn, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from flows.views import ABSENT, TableView, change, number, percent, ratio, share
from specdec_core.config.dtype import type_label
from tasks.report import ConfigurationRow, RandomDraws
from tasks.sweep_report import SweepReport, SweepVariant


def answer_table(report: SweepReport) -> TableView:
    """What each search answers, on held-out items, and the evaluations it needs."""
    return TableView(
        f"{_what(report)}, {report.domain}: answers on {len(report.heldout_ids)} held-out items",
        (
            _name_column(report),
            "skip",
            "sparsity",
            "acceptance",
            report.metric_name,
            "tokens/s",
            "speed over dense",
            "holds",
            "evaluations",
            "new",
            "stored",
        ),
        (_dense_row(report), *(_row(variant) for variant in report.variants)),
    )


def selection_table(report: SweepReport) -> TableView:
    """What each answer reached on the items that it was chosen on."""
    return TableView(
        f"The same on the {len(report.selection_ids)} selection items that chose them",
        (
            _name_column(report),
            "skip",
            "acceptance",
            report.metric_name,
            "acceptance change",
            f"{report.metric_name} change",
            "within tolerances",
        ),
        (
            _selection_row(ABSENT, report.dense, ABSENT),
            *(
                _selection_row(v.name, v.answer, "yes" if v.is_within_tolerances else "no")
                for v in report.variants
            ),
        ),
    )


def change_table(report: SweepReport) -> TableView:
    """How each sparse answer differs from dense on held-out items, with intervals."""
    compared = [(variant, variant.heldout) for variant in report.variants]
    return TableView(
        "Changes against dense on held-out items [95% interval]",
        (
            _name_column(report),
            "skip",
            "acceptance change",
            f"{report.metric_name} change",
            "speed over dense",
            "over dense without drafter",
        ),
        tuple(
            (
                variant.name,
                variant.answer.skip,
                change(found.acceptance_change),
                change(found.metric_change, found.metric_change_kind),
                ratio(found.speedup),
                ratio(found.speedup_over_autoregressive),
            )
            for variant, found in compared
            if found is not None
        ),
    )


def draw_table(report: SweepReport) -> TableView:
    """Mean and standard deviation of random sets by size; no rows where nothing was drawn."""
    rows = [draws for variant in report.variants for draws in variant.draws]
    return TableView(
        "Random sets of each size on the selection items: mean (standard deviation)",
        ("units left out", "draws", "acceptance", report.metric_name),
        tuple(_draw_row(draws) for draws in rows),
    )


def facts(report: SweepReport) -> tuple[tuple[str, str], ...]:
    """What the tables rest on, as pairs of name and value."""
    costs, cost, search = report.costs, report.cost, report.config.search
    found = [
        (
            "target",
            f"{report.target}, {report.num_layers} layers, {type_label(report.dtype)}, "
            f"{report.device}",
        ),
        ("drafter", search.drafter),
        ("search", f"units {search.units}, beam {search.beam}, depth {search.depth}"),
        (
            "work",
            f"{costs.num_evaluated} evaluations done, {costs.num_memoised} answered from the "
            f"store, {costs.num_failed} failed; {costs.wall_s:.1f} s",
        ),
        ("workers", costs.utilisation.text if costs.utilisation else "none were needed"),
    ]
    if cost is not None:
        state = "within" if cost.is_within_limit else "above"
        found.append(
            (
                "cost of the sweep",
                f"{cost.num_extra} evaluations beyond the {cost.num_base} of the search at its own "
                f"tolerances: {cost.in_searches:.2f} searches, {state} the limit of {cost.limit}",
            )
        )
    if report.step_times is not None:
        times = report.step_times
        found.append(("step times", f"run {times.run_id}, {times.hardware}"))
    found += [("run", report.run_id), ("log", report.log_file)]
    return tuple(found)


def render_sweep(report: SweepReport) -> RenderableType:
    """Return the report for the terminal."""
    tables = [table.to_rich() for _, table in sweep_tables(report)]
    lines = [f"{name}: {value}" for name, value in facts(report)]
    judged = [f"- {line}" for line in _judgements(report)]
    return Group(
        Text(report.headline, style="bold"), *tables, *(Text(line) for line in (*judged, *lines))
    )


def sweep_markdown(report: SweepReport) -> str:
    """Return the report as Markdown."""
    parts = [f"# {report.headline}", *(table.to_markdown() for _, table in sweep_tables(report))]
    parts.append("\n".join(f"- {line}" for line in _judgements(report)))
    parts.append("\n".join(f"- **{name}**: {value}" for name, value in facts(report)))
    return "\n\n".join(parts)


def sweep_tables(report: SweepReport) -> Iterator[tuple[str, TableView]]:
    """Yield every table of a sweep that has rows, by name."""
    tables = {
        "answers": answer_table(report),
        "changes": change_table(report),
        "selection": selection_table(report),
        "random draws": draw_table(report),
    }
    yield from ((name, table) for name, table in tables.items() if table.rows)


def _judgements(report: SweepReport) -> list[str]:
    """Why each answer holds or does not, then what a reader must know."""
    return [*(f"{v.name}: {v.reason}" for v in report.variants if v.reason), *report.notes]


def _what(report: SweepReport) -> str:
    return "Strategies" if report.kind == "tss-compare" else "Tolerances"


def _name_column(report: SweepReport) -> str:
    return "strategy" if report.kind == "tss-compare" else "tolerance"


def _dense_row(report: SweepReport) -> tuple[str, ...]:
    found = report.dense_heldout
    return (
        ABSENT,
        "dense",
        percent(0.0),
        number(found.acceptance_dense if found else None),
        number(found.metric_dense if found else None, 4),
        number(found.tokens_per_s_dense if found else None, 1),
        *(ABSENT,) * 5,
    )


def _row(variant: SweepVariant) -> tuple[str, ...]:
    found = variant.heldout
    losses = f" ({variant.num_losses} losses)" if variant.num_losses else ""
    return (
        variant.name,
        variant.answer.skip or "dense",
        percent(variant.sparsity),
        number(found.acceptance_sparse if found else None),
        number(found.metric_sparse if found else None, 4),
        number(found.tokens_per_s_sparse if found else None, 1),
        ratio(found.speedup if found else None),
        ABSENT if variant.holds is None else "yes" if variant.holds else "no",
        f"{variant.num_evaluations}{losses}",
        str(variant.num_evaluated),
        str(variant.num_memoised),
    )


def _selection_row(name: str, row: ConfigurationRow, is_within: str) -> tuple[str, ...]:
    return (
        name,
        row.skip or "dense",
        number(row.acceptance),
        number(row.metric, 4),
        share(row.gain_acceptance),
        share(row.gain_metric if row.metric is not None else None),
        is_within,
    )


def _draw_row(draws: RandomDraws) -> tuple[str, ...]:
    metric = ABSENT
    if draws.metric_mean is not None and draws.metric_sd is not None:
        metric = f"{draws.metric_mean:.4f} ({draws.metric_sd:.4f})"
    acceptance = f"{draws.acceptance_mean:.3f} ({draws.acceptance_sd:.3f})"
    return (str(draws.size), str(draws.num_draws), acceptance, metric)

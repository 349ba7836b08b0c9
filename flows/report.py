"""A finished search for people: the same tables for the terminal and for Prefect's pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlencode

from rich.console import Group, RenderableType
from rich.text import Text

from db.schemas import METRIC_TITLES
from flows.search_tables import (
    ablation_table,
    case_count_table,
    configuration_table,
    control_table,
    result_table,
)
from flows.services.state import SupervisorState
from flows.views import (
    ABSENT,
    TableView,
    change,
    code_block,
    number,
    ratio,
    share,
)
from specdec_core.config.dtype import type_label
from tasks.report import Case, SearchReport

_NUM_NEAR_MISSES = 3


@dataclass(frozen=True, slots=True)
class Link:
    """A place where more about a result is found."""

    title: str
    url: str


def links(
    report: SearchReport, state: SupervisorState | None, flow_run_id: str | None = None
) -> tuple[Link, ...]:
    """Return the addresses of a result in the running services; empty if none run."""
    if state is None:
        return ()
    prefect = state.prefect_api_url.removesuffix("/api")
    run_page = f"{prefect}/runs/flow-run/{flow_run_id}" if flow_run_id else prefect
    question = urlencode({"target": report.target, "domain": report.config.domain})
    return (
        Link("dashboard", f"{state.api_url}/?{urlencode({'run': report.run_id})}"),
        Link("Prefect", run_page),
        Link("MLflow", state.mlflow_url),
        Link("REST answer", f"{state.api_url}/api/v1/profiles/resolve?{question}"),
    )


def comparison_table(report: SearchReport) -> TableView:
    """Dense against sparse on the held-out items, each figure with its interval."""
    heldout = report.heldout
    if heldout is None:
        return _selection_table(report)
    skip = report.compared.skip if report.compared is not None else report.answer.skip
    autoregressive = ratio(heldout.speedup_over_autoregressive)
    return TableView(
        f"Dense against skipping {skip} on {heldout.num_items} held-out items",
        ("figure", "dense", "sparse", f"change [{heldout.speedup.confidence:.0%} interval]"),
        (
            (
                "acceptance length, tokens per step",
                number(heldout.acceptance_dense),
                number(heldout.acceptance_sparse),
                change(heldout.acceptance_change),
            ),
            (
                METRIC_TITLES[heldout.metric_name],
                number(heldout.metric_dense, 4),
                number(heldout.metric_sparse, 4),
                change(heldout.metric_change, heldout.metric_change_kind),
            ),
            (
                "tokens per second",
                number(heldout.tokens_per_s_dense, 1),
                number(heldout.tokens_per_s_sparse, 1),
                ratio(heldout.speedup),
            ),
            (
                "tokens of use per second",
                number(heldout.useful_tokens_per_s_dense, 1),
                number(heldout.useful_tokens_per_s_sparse, 1),
                ratio(heldout.useful_speedup),
            ),
            (
                "memory of a request, MB",
                _megabytes(heldout.memory_dense_bytes),
                _megabytes(heldout.memory_sparse_bytes),
                change(heldout.memory_change),
            ),
            ("sparse with drafter over dense without one", ABSENT, ABSENT, autoregressive),
        ),
    )


def _megabytes(value: float | None) -> str:
    return number(None if value is None else value / 1e6, 1)


def _selection_table(report: SearchReport) -> TableView:
    row = report.compared or report.answer
    return TableView(
        f"{len(report.selection_ids)} selection items; nothing was compared on held-out items",
        ("figure", "dense", row.skip or "dense", "change"),
        (
            (
                "acceptance length, tokens per step",
                number(report.dense.acceptance),
                number(row.acceptance),
                share(row.gain_acceptance),
            ),
            (
                METRIC_TITLES[report.metric_name],
                number(report.dense.metric, 4),
                number(row.metric, 4),
                share(row.gain_metric),
            ),
        ),
    )


def level_tables(report: SearchReport) -> tuple[TableView, ...]:
    """Every configuration of every level, best first."""
    return tuple(
        configuration_table(
            f"Level {level.number}: {len(level.rows)} configurations",
            level.rows,
            report.metric_name,
        )
        for level in report.levels
    )


def front_table(report: SearchReport) -> TableView:
    """Configurations that no other one beats in both acceptance and metric."""
    return configuration_table(
        "Search front on the selection items", report.front, report.metric_name
    )


def near_miss_table(report: SearchReport) -> TableView:
    """Configurations outside the tolerances that come closest to them."""
    missed = [
        row
        for level in report.levels
        for row in level.rows
        if not row.is_feasible and row.violation is not None
    ]
    missed.sort(key=lambda row: (row.violation or 0.0, row.skip))
    return configuration_table(
        "Nearest misses of the tolerances", missed[:_NUM_NEAR_MISSES], report.metric_name
    )


def facts(report: SearchReport) -> tuple[tuple[str, str], ...]:
    """The decision and what it rests on, as pairs of name and value."""
    costs = report.costs
    done = f"{costs.num_evaluated} evaluations done, {costs.num_memoised} answered from the store"
    failed = f", {costs.num_failed} failed" if costs.num_failed else ""
    if costs.num_dropped:
        failed += (
            f", {costs.num_dropped} sets dropped unfinished, which saved at most "
            f"{costs.saved_tokens} tokens"
        )
    fresh = "new" if report.profile.is_new else f"was {report.profile.status} already"
    return (
        ("skip set", report.profile.skip or "dense (nothing is skipped)"),
        ("decision", report.profile.reason),
        ("profile", f"id {report.profile.id}, version {report.profile.version}, {fresh}"),
        (
            "target",
            f"{report.target}, {report.num_layers} layers, {type_label(report.dtype)}, "
            f"{report.device}",
        ),
        ("drafter", report.config.drafter),
        ("suite", f"{report.suite}: {_item_counts(report)}"),
        ("stopped because", report.stop_reason),
        ("work", f"{done}{failed}; {costs.wall_s:.1f} s"),
        ("workers", costs.utilisation.text if costs.utilisation else "none were needed"),
        ("negative control", _control_text(report)),
        ("run", report.run_id),
        ("log", report.log_file),
    )


def render(report: SearchReport, found: Iterable[Link] = ()) -> RenderableType:
    """Return the report for the terminal."""
    parts: list[RenderableType] = [Text(report.headline, style="bold"), Text("")]
    parts.append(comparison_table(report).to_rich())
    parts += [table.to_rich() for table in _beside_comparison(report)]
    parts += [_line(name, value) for name, value in facts(report)]
    parts += [Text(""), front_table(report).to_rich()]
    misses = near_miss_table(report)
    if misses.rows:
        parts.append(misses.to_rich())
    for title, lines in _paragraphs(report):
        parts += [Text(""), Text(title, style="bold"), *(Text(f"- {line}") for line in lines)]
    addresses = tuple(found)
    if addresses:
        parts += [Text(""), *(_line(link.title, link.url) for link in addresses)]
    return Group(*parts)


def to_markdown(report: SearchReport, found: Iterable[Link] = ()) -> str:
    """Return the report as Markdown."""
    parts = [f"# {report.headline}", comparison_table(report).to_markdown()]
    parts += [table.to_markdown() for table in _beside_comparison(report)]
    parts.append("\n".join(f"- **{name}**: {value}" for name, value in facts(report)))
    parts.append(front_table(report).to_markdown())
    misses = near_miss_table(report)
    if misses.rows:
        parts.append(misses.to_markdown())
    for title, lines in _paragraphs(report):
        parts.append(f"### {title}\n\n" + "\n".join(f"- {line}" for line in lines))
    addresses = tuple(found)
    if addresses:
        parts.append("\n".join(f"- [{link.title}]({link.url})" for link in addresses))
    return "\n\n".join(parts)


def whole_markdown(report: SearchReport) -> str:
    """Return all that a search found as one document: report, single units, cases, levels."""
    parts = [to_markdown(report), result_table([report]).to_markdown()]
    parts += [ablation_table(report).to_markdown()] if report.ablation else []
    parts += ["## Dense and sparse answers", cases_markdown(report)]
    parts += [table.to_markdown() for table in level_tables(report)]
    return "\n\n".join(parts)


def cases_markdown(report: SearchReport) -> str:
    """Return the qualitative cases as Markdown: prompt, reference, both answers."""
    if not report.cases:
        return "No held-out items were compared, so there are no cases."
    return "\n\n".join(_case_markdown(case) for case in report.cases)


def _case_markdown(case: Case) -> str:
    scores = f"dense {number(case.dense_score)}, sparse {number(case.sparse_score)}"
    parts = [f"### {case.verdict.capitalize()}: {case.item_id} ({scores})"]
    texts = (
        ("Prompt", case.prompt),
        ("Reference", case.reference),
        ("Dense", case.dense_text),
        ("Sparse", case.sparse_text),
    )
    parts += [f"{title}:\n\n{code_block(text)}" for title, text in texts if text is not None]
    return "\n\n".join(parts)


def _beside_comparison(report: SearchReport) -> list[TableView]:
    """What else was measured of the compared set."""
    tables = (case_count_table([report]), control_table([report]))
    return [table for table in tables if table.rows]


def _paragraphs(report: SearchReport) -> list[tuple[str, tuple[str, ...]]]:
    given = (
        ("What was tried, and what to try next", report.advice),
        ("Signs of degenerate output", report.guards),
        ("Notes", report.notes),
    )
    return [(title, lines) for title, lines in given if lines]


def _control_text(report: SearchReport) -> str:
    found = report.negative_control
    if found is None:
        return "none"
    metric = change(found.metric_change, found.metric_change_kind)
    return (
        f"{found.domain}, {len(found.item_ids)} items: {found.verdict}; "
        f"{found.metric_name} {metric}, acceptance {change(found.acceptance_change)}, "
        f"{found.same_beginning.estimate:.0%} of the dense output kept"
    )


def _item_counts(report: SearchReport) -> str:
    return f"{len(report.selection_ids)} selection, {len(report.heldout_ids)} held-out items"


def _line(name: str, value: str) -> Text:
    return Text(f"{name}: {value}")

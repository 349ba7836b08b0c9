"""Several stored runs beside each other, for people and as files."""

from __future__ import annotations

from collections.abc import Iterator

from flows.exports import Export, plain_table
from flows.search_tables import (
    case_count_table,
    control_table,
    drafter_table,
    joint_ablation_table,
    result_table,
)
from flows.sweep_tables import answer_table, change_table
from flows.views import TableView
from tasks.joint import Joint, joint_plots


def joint_tables(joint: Joint) -> Iterator[tuple[str, TableView]]:
    """Yield every joint table that has rows, by name."""
    searches = joint.searches
    if searches:
        yield "results", result_table(searches)
        for name, table in (
            ("cases", case_count_table(searches)),
            ("negative control", control_table(searches)),
        ):
            if table.rows:
                yield name, table
    for target in dict.fromkeys(report.target for report in searches if report.ablation):
        own = [report for report in searches if report.target == target and report.ablation]
        yield f"single units of {target}", joint_ablation_table(own)
    for sweep in joint.sweeps:
        name = f"{sweep.kind} {sweep.domain} {sweep.run_id[:8]}"
        yield name, answer_table(sweep)
        changes = change_table(sweep)
        if changes.rows:
            yield f"{name}, changes", changes
    if joint.drafters:
        yield "drafters", drafter_table(joint.drafters)


def joint_export(joint: Joint, name: str) -> Export:
    """Return the joint tables and figures, ready to be written."""
    tables = list(joint_tables(joint))
    document = {
        "comparison": name,
        "run_ids": list(joint.run_ids),
        "tables": {key: {"title": view.title, **plain_table(view)} for key, view in tables},
    }
    markdown = "\n\n".join([f"# {name}", *(view.to_markdown() for _, view in tables)])
    return Export(name, document, markdown, tuple(joint_plots(joint)))

"""The life of a profile version as tables: who moved it when and why, and what was remeasured."""

from __future__ import annotations

from dashboards.queries import Detail
from dashboards.views import Cell, Table, change_cells, flag_cell, moment, named_columns, text_cell


def transitions_table(detail: Detail) -> Table:
    """Every change of status of the selected version."""
    titles = {
        "created_at": "time",
        "from_status": "from",
        "to_status": "to",
        "reason": "reason",
        "actor": "who",
        "command": "command",
        "run_id": "run",
    }
    rows = tuple(
        (
            Cell(each.created_at.isoformat(), moment(each.created_at)),
            *map(text_cell, (each.from_status, each.to_status, each.reason)),
            *map(text_cell, (each.actor or None, each.command or None, each.run_id)),
        )
        for each in detail.transitions
    )
    return Table("transitions", "Changes of status, oldest first", named_columns(**titles), rows)


def verifications_table(detail: Detail) -> Table:
    """Every repeated measurement of the selected version, in its held-out changes."""
    titles = {"created_at": "time", "holds": "result", "reason": "reason"}
    compared = [each.heldout for each in detail.verifications if each.heldout]
    metric_name = compared[0].metric_name if compared else "metric"
    for figure in ("acceptance", "metric", "speedup"):
        title = {"speedup": "speed-up", "metric": metric_name}.get(figure, figure)
        titles |= {figure: title, f"{figure}_low": "95 % low", f"{figure}_high": "95 % high"}
    titles |= {"hardware": "hardware", "run_id": "run"}
    rows = []
    for each in detail.verifications:
        found = each.heldout
        rows.append(
            (
                Cell(each.created_at.isoformat(), moment(each.created_at)),
                flag_cell(each.holds, "holds", "does not hold"),
                text_cell(each.reason),
                *change_cells(found.acceptance_change if found else None, "relative"),
                *change_cells(
                    found.metric_change if found else None,
                    found.metric_change_kind if found else "relative",
                ),
                *change_cells(found.speedup if found else None, "ratio"),
                *map(text_cell, (each.hardware or None, each.run_id)),
            )
        )
    caption = "Measured again on the same held-out items"
    return Table("verifications", caption, named_columns(**titles), tuple(rows))

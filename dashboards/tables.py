"""The tables of a page; each is also a CSV download."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest

from dashboards.comparison import comparisons, result_of
from dashboards.lifecycle import transitions_table, verifications_table
from dashboards.queries import Detail
from dashboards.results import control_table, results_table
from dashboards.summary import Configuration, SearchSummary
from dashboards.views import (
    Cell,
    Table,
    change_cells,
    flag_cell,
    moment,
    named_columns,
    number_cell,
    percent_cell,
    share_cell,
    text_cell,
)
from db.schemas import METRIC_TITLES, RunRecord, SkipProfile
from specdec_core.config.dtype import type_label
from specdec_core.skip import SkipConfig

_GUARD_TITLES = {
    "mean_output_tokens": "mean output length, tokens",
    "stop_rate": "outputs that end by themselves, share",
    "distinct_2": "distinct token bigrams, share",
    "longest_repeat": "longest repeated passage, tokens",
}


def heldout_table(search: SearchSummary) -> Table:
    """Dense against sparse on held-out items."""
    columns = named_columns(
        figure="figure",
        dense="dense",
        sparse="sparse",
        change="change",
        low="95 % low",
        high="95 % high",
        kind="kind of change",
        reading="reading",
    )
    rows = tuple(
        (
            text_cell(row.figure),
            number_cell(row.dense, row.digits),
            number_cell(row.sparse, row.digits),
            *change_cells(row.change, row.kind),
            text_cell(row.kind),
            text_cell(row.reading),
        )
        for row in comparisons(search)
    )
    num_items = search.heldout.num_items if search.heldout else 0
    caption = f"Dense against skipping {search.compared_label}, {num_items} held-out items, paired"
    return Table("heldout", caption, columns, rows)


def front_table(search: SearchSummary) -> Table:
    """Feasible configurations that no other one beats in both gains."""
    return _configuration_table("front", "Search front, selection items", search, search.front)


def ablation_table(search: SearchSummary) -> Table:
    """What leaving out each single unit changes."""
    return _configuration_table(
        "ablation", "Single units, by layer, selection items", search, search.ablation
    )


def levels_table(search: SearchSummary) -> Table:
    """Every configuration of every level."""
    return _configuration_table(
        "levels", "All configurations, by level, best first", search, search.configurations
    )


def level_tables(search: SearchSummary) -> tuple[Table, ...]:
    """One table per level, for the page."""
    return tuple(
        _configuration_table(
            f"level-{level.number}",
            f"Level {level.number}: {_plural(len(level.rows), 'configuration')}, "
            f"{sum(row.is_feasible for row in level.rows)} within tolerance",
            search,
            level.rows,
        )
        for level in search.levels
    )


def guards_table(search: SearchSummary) -> Table:
    """Degeneration guards of both arms."""
    found = search.heldout
    dense, sparse = (found.guards_dense, found.guards_sparse) if found else ({}, {})
    rows = tuple(
        (
            Cell(name, _GUARD_TITLES.get(name, name)),
            number_cell(dense.get(name), 2),
            number_cell(sparse.get(name), 2),
        )
        for name in dict.fromkeys([*dense, *sparse])
    )
    columns = named_columns(guard="guard", dense="dense", sparse="sparse")
    return Table("guards", "Degeneration guards, held-out items", columns, rows)


def cases_table(search: SearchSummary) -> Table:
    """Held-out items with both answers."""
    columns = named_columns(
        item_id="item",
        verdict="verdict",
        prompt="source",
        reference="reference",
        dense_text="dense output",
        sparse_text="sparse output",
        dense_score="dense score",
        sparse_score="sparse score",
    )
    rows = tuple(
        (
            *map(text_cell, (case.item_id, case.verdict, case.prompt, case.reference)),
            *map(text_cell, (case.dense_text, case.sparse_text)),
            number_cell(case.dense_score),
            number_cell(case.sparse_score),
        )
        for case in search.cases
    )
    return Table("cases", "Held-out items, dense and sparse", columns, rows)


def depth_table(detail: Detail) -> Table:
    """Share of drafting steps that accepted at least k tokens."""
    found = detail.depth
    pairs = zip_longest(found.dense, found.sparse) if found else ()
    rows = tuple(
        (Cell(k, str(k), is_number=True), number_cell(dense), number_cell(sparse))
        for k, (dense, sparse) in enumerate(pairs, start=1)
    )
    columns = named_columns(k="tokens accepted, at least", dense="dense", sparse="sparse")
    return Table("depth", "Share of drafting steps, held-out items", columns, rows)


def history_table(detail: Detail) -> Table:
    """Every version of the selected profile's key."""
    return profiles_table(detail.history, "history", "Versions of this profile, newest first")


def profiles_table(
    profiles: Iterable[SkipProfile], name: str = "profiles", caption: str = "Skip profiles"
) -> Table:
    """Profiles with their held-out figures; those of a dense profile are its own alone."""
    columns = named_columns(
        id="id",
        version="version",
        domain="domain",
        target="target",
        drafter="drafter",
        dtype="type",
        skip="skip set",
        status="status",
        result="result",
        acceptance_dense="acceptance, dense",
        acceptance_sparse="acceptance, sparse",
        metric_dense="metric, dense",
        metric_sparse="metric, sparse",
        metric_name="metric is",
        speedup="speed-up",
        speedup_low="95 % low",
        speedup_high="95 % high",
        num_items="held-out items",
        hardware="hardware",
        reason="reason",
        run_id="run",
        created_at="date",
    )
    return Table(name, caption, columns, tuple(_profile_cells(each) for each in profiles))


def _profile_cells(profile: SkipProfile) -> tuple[Cell, ...]:
    found = None if profile.is_dense else profile.heldout
    dense = profile.heldout
    return (
        Cell(profile.id, str(profile.id), is_number=True),
        Cell(profile.version, str(profile.version), is_number=True),
        *map(text_cell, (profile.domain, profile.target, profile.drafter)),
        Cell(profile.dtype, type_label(profile.dtype)),
        Cell(profile.skip, SkipConfig.parse(profile.skip).label),
        text_cell(profile.status),
        text_cell(result_of(profile)),
        number_cell(dense.acceptance_dense if dense else None),
        number_cell(found.acceptance_sparse if found else None),
        number_cell(dense.metric_dense if dense else None, 4),
        number_cell(found.metric_sparse if found else None, 4),
        text_cell(METRIC_TITLES[profile.selection.metric_name]),
        *change_cells(found.speedup if found else None, "ratio"),
        Cell(dense.num_items, str(dense.num_items), True) if dense else number_cell(None),
        *map(text_cell, (profile.hardware, profile.reason, profile.run_id)),
        Cell(profile.created_at.isoformat(), moment(profile.created_at)),
    )


def runs_table(runs: Iterable[RunRecord]) -> Table:
    """Runs with their state."""
    columns = named_columns(
        id="run", kind="kind", name="name", status="status", error="error", created_at="started"
    )
    rows = tuple(
        (
            *map(text_cell, (run.id, run.kind, run.name, run.status, run.error)),
            Cell(run.created_at.isoformat(), moment(run.created_at)),
        )
        for run in runs
    )
    return Table("runs", "Latest searches", columns, rows)


SEARCH_TABLES: Mapping[str, Callable[[SearchSummary], Table]] = {
    "results": results_table,
    "heldout": heldout_table,
    "control": control_table,
    "front": front_table,
    "ablation": ablation_table,
    "levels": levels_table,
    "guards": guards_table,
    "cases": cases_table,
}
DETAIL_TABLES: Mapping[str, Callable[[Detail], Table]] = {
    "depth": depth_table,
    "history": history_table,
    "transitions": transitions_table,
    "verifications": verifications_table,
}


def _configuration_table(
    name: str, caption: str, search: SearchSummary, given: Iterable[Configuration]
) -> Table:
    columns = named_columns(
        skip="skip set",
        level="level",
        acceptance="acceptance",
        metric=search.metric_name,
        gain_acceptance="acceptance change",
        gain_metric=f"{search.metric_name} change",
        mean_output_tokens="output tokens",
        stop_rate="stop rate",
        is_feasible="within tolerance",
        violation="short by",
        evaluation_key="evaluation",
        error="error, or where it was dropped",
    )
    return Table(name, caption, columns, tuple(_configuration_cells(row) for row in given))


def _configuration_cells(row: Configuration) -> tuple[Cell, ...]:
    gain_metric = None if row.metric is None else row.gain_metric
    return (
        Cell(row.skip, row.label),
        Cell(row.level, str(row.level), is_number=True),
        number_cell(row.acceptance),
        number_cell(row.metric, 4),
        percent_cell(row.gain_acceptance),
        percent_cell(gain_metric),
        number_cell(row.mean_output_tokens, 1),
        share_cell(row.stop_rate),
        flag_cell(row.is_feasible, "yes", _without_figures(row) or "no"),
        Cell(row.violation, f"{row.violation:.1%}" if row.violation else "", is_number=True),
        Cell(row.key, (row.key or "")[:8]),
        Cell(row.error or row.dropped, row.error or row.dropped or ""),
    )


def _without_figures(row: Configuration) -> str:
    """Return why a configuration has no figures of its own; empty where it has."""
    return "failed" if row.error else "dropped" if row.dropped else ""


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

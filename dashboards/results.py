"""What a search found in the shape of the paper's tables, and what it did elsewhere."""

from __future__ import annotations

from dashboards.summary import SearchSummary
from dashboards.views import (
    Cell,
    Table,
    change_cells,
    named_columns,
    number_cell,
    share_cell,
    text_cell,
)
from db.schemas import METRIC_TITLES
from specdec_core.skip import SkipConfig


def results_table(search: SearchSummary) -> Table:
    """Dense and compared set on held-out items: a row each, as in a table over domains.

    Source: TSS (its table of results per domain).
    """
    titles = {
        "domain": "domain",
        "skip": "skip set",
        "sparsity": "sparsity",
        "acceptance": "acceptance",
        "metric": search.metric_name,
        "tokens_per_s": "tokens/s",
        "speedup": "speed over dense",
        "speedup_low": "95 % low",
        "speedup_high": "95 % high",
        "better": "items better",
        "same": "same",
        "worse": "worse",
    }
    columns = named_columns(**titles)
    found = search.heldout
    if found is None:
        return Table("results", "Results on held-out items", columns, ())
    skip = (search.compared or search.answer).skip
    counts = search.case_counts
    numbers = (counts.better, counts.same, counts.worse) if counts else (None,) * 3
    rows = (
        (
            text_cell(search.config.domain),
            Cell("", "dense"),
            share_cell(0.0),
            number_cell(found.acceptance_dense),
            number_cell(found.metric_dense, 4),
            number_cell(found.tokens_per_s_dense, 1),
            *change_cells(None, "ratio"),
            *(number_cell(None),) * 3,
        ),
        (
            text_cell(search.config.domain),
            Cell(skip, search.compared_label),
            share_cell(SkipConfig.parse(skip).sparsity(search.num_layers)),
            number_cell(found.acceptance_sparse),
            number_cell(found.metric_sparse, 4),
            number_cell(found.tokens_per_s_sparse, 1),
            *change_cells(found.speedup, "ratio"),
            *(number_cell(number, 0) for number in numbers),
        ),
    )
    caption = f"Results on {found.num_items} held-out items"
    return Table("results", caption, columns, rows)


def control_table(search: SearchSummary) -> Table:
    """The compared set in a domain that it was not searched for; no rows where none was asked."""
    titles = {
        "domain": "domain",
        "skip": "skip set",
        "num_items": "items",
        "figure": "figure",
        "dense": "dense",
        "sparse": "sparse",
        "change": "change",
        "low": "95 % low",
        "high": "95 % high",
        "verdict": "verdict",
    }
    columns = named_columns(**titles)
    found = search.negative_control
    if found is None:
        return Table("control", "Negative control", columns, ())
    lead = (
        text_cell(found.domain),
        Cell(found.skip, SkipConfig.parse(found.skip).label),
        number_cell(len(found.item_ids), 0),
    )
    acceptance = (
        *lead,
        text_cell("acceptance length"),
        number_cell(found.acceptance_dense),
        number_cell(found.acceptance_sparse),
        *change_cells(found.acceptance_change, "relative"),
        text_cell(found.verdict),
    )
    metric = (
        *lead,
        text_cell(METRIC_TITLES[found.metric_name]),
        number_cell(found.metric_dense, 4),
        number_cell(found.metric_sparse, 4),
        *change_cells(found.metric_change, found.metric_change_kind),
        text_cell(found.verdict),
    )
    rows = (acceptance, metric) if found.metric_dense is not None else (acceptance,)
    caption = f"Negative control: the same set in {found.domain}, which it was not searched for"
    return Table("control", caption, columns, rows)

"""What dropping skip sets early saves: completed searches replayed part by part.

A search that evaluated everything has stored what every set does on every item. The real search
class is driven with these answers, in parts of some size, by one worker or several, and must come
to the same outcome. No timings and no model: the same searches give the same figures anywhere.
A worker's time is counted in forwards, one per output token of the longest output of a part.

``python -m benchmarks bounding`` makes the searches it needs first, in the cache folder, and goes
on where it was stopped. ``python -m benchmarks.bounding STORE [RUN ..]`` takes those of a store.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.bound_replay import Order, Replay, Table, same_findings, whole_outcome
from benchmarks.common import write
from db.store import Store
from specdec_core.config.search import BOUNDED, SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.search.outcome import SearchOutcome
from tasks.evaluator import ModelEvaluatorFactory
from tasks.pool import pool_factory
from tasks.report import SearchReport
from tasks.search import KIND, run_search

PART_SIZES = (1, 2, 4, 8, 16)
WORKERS = (1, 4)
ORDERS: tuple[Order, ...] = ("model", "promise")
_GEMMA, _SMOLLM = "pypi:gemma3-270m", "pypi:smollm2-135m"
# Domain, target, output tokens.
_SEARCHES: tuple[tuple[str, str, int], ...] = (
    ("mmlu", _SMOLLM, 32),
    ("translation", _GEMMA, 48),
    ("chat", _SMOLLM, 48),
    ("qa", _SMOLLM, 48),
    ("rag", _SMOLLM, 48),
)


def run() -> None:
    """Make the searches that are not there yet, replay all of them, and store the figures."""
    cache = Settings().cache_dir / "benchmarks" / "bounding"
    settings = Settings(home=cache)
    start_pool = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True)
    with Store.open(settings.resolved_database_url) as store:
        reports = []
        for domain, target, max_new_tokens in _SEARCHES:
            print(f"  {domain} on {target}", flush=True)
            config = SearchConfig(
                domain=domain,
                target=target,
                suite="builtin",
                beam=2,
                depth=2,
                max_new_tokens=max_new_tokens,
                num_heldout=2,
                activate=False,
                dtype="bfloat16",
            )
            reports.append(run_search(config, settings, store, start_pool, log=lambda _: None))
        measure(store, reports)


def measure(store: Store, reports: Sequence[SearchReport]) -> None:
    """Replay stored searches and store the figures."""
    searches = [figures_of(Table.of(store, report)) for report in reports]
    write("bounding", {"searches": searches, "overall": overall(searches)})


def figures_of(table: Table) -> dict[str, Any]:
    """Return what dropping saves in one search, by part size, order and workers."""
    report, config = table.report, table.report.config
    everything = [item for items in table.items.values() for item in items]
    num_tokens = sum(item.num_tokens for item in everything)
    batches = {
        size: sum(
            max((item.num_tokens for item in part), default=0)
            for skip in table.items
            for part in table.parts(skip, size)
        )
        for size in PART_SIZES
    }
    whole = whole_outcome(table)
    return {
        "domain": config.domain,
        "target": report.target,
        "drafter": config.drafter,
        "strategy": config.strategy,
        "metric": _metric_of(report),
        "dense_metric": report.dense.metric,
        "beam": config.beam,
        "depth": config.depth,
        "sets": len(table.items),
        "items": table.num_items,
        "tokens_of_all_sets": num_tokens,
        "forwards_of_all_sets_by_batch": {str(size): num for size, num in batches.items()},
        "bounded": [
            _replayed(table, whole, size, order, workers, num_tokens, batches)
            for size in PART_SIZES
            if size < table.num_items
            for order in ORDERS
            for workers in WORKERS
        ],
    }


def _metric_of(report: SearchReport) -> str:
    if report.dense.metric is None:
        return "none"
    return "agreement" if report.metric_name == "agreement" else "task metric"


def overall(searches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the share of all searches' tokens that is decoded, by size, order and workers."""
    total = sum(search["tokens_of_all_sets"] for search in searches)
    settings = [(s, o, w) for s in PART_SIZES for o in ORDERS for w in WORKERS]
    found = []
    for size, order, workers in settings:
        same = [
            row
            for search in searches
            for row in search["bounded"]
            if (row["part_size"], row["order"], row["workers"]) == (size, order, workers)
        ]
        if len(same) == len(searches):
            saved = 1 - sum(row["tokens"] for row in same) / total
            found.append(
                {"part_size": size, "order": order, "workers": workers, "tokens_saved": saved}
            )
    return found


def _replayed(
    table: Table,
    whole: SearchOutcome,
    size: int,
    order: Order,
    workers: int,
    num_tokens: int,
    batches: Mapping[int, int],
) -> dict[str, Any]:
    replay = Replay(table, size, workers, order)
    outcome = replay.run()
    depth = table.report.config.depth
    assert same_findings(outcome, depth) == same_findings(whole, depth)
    assert str(outcome.answer.skip) == table.report.answer.skip
    return {
        "part_size": size,
        "order": order,
        "workers": workers,
        "sets_dropped": len(outcome.dropped),
        "tokens": replay.num_tokens,
        "tokens_saved": 1 - replay.num_tokens / num_tokens,
        "forwards": replay.num_forwards,
        "forwards_saved_at_this_batch": 1 - replay.num_forwards / batches[size],
        "forwards_over_those_of_whole_sets": replay.num_forwards / batches[max(batches)],
        "clock": replay.clock,
    }


def _completed(store: Store, run_ids: Sequence[str]) -> list[SearchReport]:
    """Return the reports of the runs named, or of all that evaluated whole sets."""
    rows = store.runs.list(kind=KIND, status="completed", limit=None)
    chosen = [row for row in rows if not run_ids or row.id in run_ids]
    reports = [SearchReport.model_validate(row.summary) for row in reversed(chosen)]
    usable = [
        report
        for report in reports
        if report.config.strategy in BOUNDED
        and not any(row.dropped for level in report.levels for row in level.rows)
    ]
    # A search that was repeated is replayed once.
    return list({report.study: report for report in usable}.values())


def main() -> None:
    """Replay the searches of a store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="database URL, such as sqlite:///folder/specdec.db")
    parser.add_argument("runs", nargs="*", help="ids of completed searches; default: all of them")
    args = parser.parse_args()
    with Store.open(args.store) as store:
        reports = _completed(store, args.runs)
        if not reports:
            parser.error(f"{args.store} holds no completed search that evaluated whole sets")
        measure(store, reports)


if __name__ == "__main__":
    main()

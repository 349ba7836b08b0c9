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
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from benchmarks.common import write
from db.store import Store
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.search import BOUNDED, SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.records import SampleResult
from specdec_core.search.bounds import ItemLimits, PartialCounts, score_bounds
from specdec_core.search.outcome import Failure, SearchOutcome
from specdec_core.search.part_schedule import PartSchedule
from specdec_core.search.space import candidates
from specdec_core.search.strategies import make_objective
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipConfig
from tasks.evaluator import ModelEvaluatorFactory
from tasks.pool import pool_factory
from tasks.report import ConfigurationRow, SearchReport
from tasks.search import KIND, run_search

PART_SIZES = (1, 2, 4, 8, 16)
WORKERS = (1, 4)
Order = Literal["model", "promise"]
ORDERS: tuple[Order, ...] = ("model", "promise")
_GEMMA, _SMOLLM = "pypi:gemma3-270m", "pypi:smollm2-135m"
_SEARCHES: tuple[tuple[str, str], ...] = (
    ("translation", _GEMMA),
    ("qa", _GEMMA),
    ("mmlu", _GEMMA),
    ("summarization", _SMOLLM),
    ("rag", _SMOLLM),
    ("mmlu", _SMOLLM),
    ("chat", _SMOLLM),
)


@dataclass(frozen=True, slots=True)
class Item:
    """What one set does on one item."""

    counts: PartialCounts
    num_tokens: int

    @classmethod
    def of(cls, sample: SampleResult) -> Item:
        """Return the counts of a stored sample."""
        trace = sample.trace.committed
        score = (0, 0.0) if sample.score is None else (1, sample.score)
        return cls(PartialCounts(1, sum(trace), len(trace), *score), len(sample.token_ids))


@dataclass(frozen=True, slots=True)
class Table:
    """Everything a completed search found out: its answers by skip set and item."""

    report: SearchReport
    items: Mapping[SkipConfig, Sequence[Item]]
    failures: Mapping[SkipConfig, Failure]

    @classmethod
    def of(cls, store: Store, report: SearchReport) -> Table:
        """Read the answers of a stored search."""
        rows = [report.dense, *(row for level in report.levels for row in level.rows)]
        items = {
            SkipConfig.parse(row.skip): [Item.of(s) for s in store.evaluations.samples(row.key)]
            for row in rows
            if row.key is not None and row.error is None
        }
        failed = {SkipConfig.parse(row.skip): Failure(row.error) for row in rows if row.error}
        return cls(report, items, failed)

    @property
    def num_items(self) -> int:
        """Items of every set."""
        return len(self.report.selection_ids)

    def search(self, order: Order) -> TssSearch:
        """Return the search at its beginning."""
        config = self.report.config
        units = candidates(
            config.units,
            self.report.num_layers,
            config.protect_ends,
            only=config.candidates,
            protected=config.protected,
        )
        return TssSearch(
            units,
            beam=config.beam,
            depth=config.depth,
            objective=make_objective(config),
            asking=order,
        )

    def total(self, skip: SkipConfig) -> PartialCounts:
        """Return the sums over all items of a set, in their order."""
        return sum((item.counts for item in self.items.get(skip, ())), PartialCounts())

    def parts(self, skip: SkipConfig, size: int) -> list[Sequence[Item]]:
        """Return the items of a set in parts; a set that failed has one empty part."""
        items = self.items.get(skip, ())
        return [items[start : start + size] for start in range(0, len(items), size)] or [()]


@dataclass(slots=True)
class Replay:
    """One search in parts of one size, on a clock that counts forwards."""

    table: Table
    part_size: int
    num_workers: int
    order: Order
    num_tokens: int = 0
    num_forwards: int = 0
    """Of all workers together."""
    clock: int = 0
    _counts: dict[SkipConfig, PartialCounts] = field(default_factory=dict)

    def run(self) -> SearchOutcome:
        """Answer the search; what it took is in the fields."""
        search = self.table.search(self.order)
        schedule = PartSchedule(-(-self.table.num_items // self.part_size))
        running: list[tuple[int, int, tuple[SkipConfig, int]]] = []
        numbers = count()
        while not search.is_finished:
            pending = search.pending()
            while len(running) < self.num_workers and (skip := schedule.next(pending)) is not None:
                part = schedule.begin(skip)
                end = self.clock + self._forwards(part)
                heapq.heappush(running, (end, next(numbers), part))
            self.clock, _, part = heapq.heappop(running)
            self._tell(search, part, is_last=schedule.end(part))
        return search.outcome()

    def _forwards(self, part: tuple[SkipConfig, int]) -> int:
        """Count a part and return the forwards it takes."""
        parts = self.table.parts(part[0], self.part_size)
        items = parts[part[1]] if part[1] < len(parts) else ()
        forwards = max((item.num_tokens for item in items), default=0)
        self.num_tokens += sum(item.num_tokens for item in items)
        self.num_forwards += forwards
        return forwards

    def _tell(self, search: TssSearch, part: tuple[SkipConfig, int], *, is_last: bool) -> None:
        skip, number = part
        if skip not in search.pending():
            return
        if skip in self.table.failures:
            search.tell(skip, self.table.failures[skip])
            return
        items = self.table.parts(skip, self.part_size)[number]
        counts = sum((item.counts for item in items), self._counts.get(skip, PartialCounts()))
        self._counts[skip] = counts
        if is_last:
            search.tell(skip, self.table.total(skip).score)
            return
        config = self.table.report.config
        limits = ItemLimits(config.max_new_tokens, parse_drafter(config.drafter).max_path)
        has_metric = self.table.report.dense.metric is not None
        search.narrow(
            skip, score_bounds(counts, self.table.num_items, limits, has_metric=has_metric)
        )


def run() -> None:
    """Make the searches that are not there yet, replay all of them, and store the figures."""
    cache = Settings().cache_dir / "benchmarks" / "bounding"
    settings = Settings(home=cache)
    start_pool = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True)
    with Store.open(settings.resolved_database_url) as store:
        reports = []
        for domain, target in _SEARCHES:
            print(f"  {domain} on {target}", flush=True)
            config = SearchConfig(
                domain=domain,
                target=target,
                suite="builtin",
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
    whole = _whole(table)
    return {
        "domain": config.domain,
        "target": report.target,
        "drafter": config.drafter,
        "strategy": config.strategy,
        "metric": "none" if report.dense.metric is None else "task metric",
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


def same_findings(outcome: SearchOutcome, depth: int) -> object:
    """Return all that dropping must not change; the last level extends nothing."""
    return (
        outcome.answer.skip,
        {member.skip: member.score for member in outcome.front},
        [
            [member.skip for member in level.frontier]
            for level in outcome.levels
            if level.number < depth
        ],
        outcome.stop_reason,
    )


def _whole(table: Table) -> SearchOutcome:
    search = table.search("model")
    while not search.is_finished:
        for skip in search.pending():
            search.tell(skip, table.failures.get(skip, table.total(skip).score))
    return search.outcome()


def _completed(store: Store, run_ids: Sequence[str]) -> list[SearchReport]:
    """Return the reports of the runs named, or of all that evaluated whole sets."""
    rows = store.runs.list(kind=KIND, status="completed", limit=None)
    chosen = [row for row in rows if not run_ids or row.id in run_ids]
    reports = [SearchReport.model_validate(row.summary) for row in reversed(chosen)]
    usable = [
        report
        for report in reports
        if report.config.strategy in BOUNDED and not any(map(_is_dropped, report.levels))
    ]
    # A search that was repeated is replayed once.
    return list({report.study: report for report in usable}.values())


def _is_dropped(level: Any) -> bool:
    rows: Sequence[ConfigurationRow] = level.rows
    return any(row.dropped for row in rows)


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

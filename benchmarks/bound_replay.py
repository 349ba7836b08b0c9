"""A completed search done again part by part, with its stored answers instead of a model."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from db.store import Store
from specdec_core.bench.agreement import agreement_scores
from specdec_core.config.drafters import parse_drafter
from specdec_core.records import SampleResult
from specdec_core.search.bounds import ItemLimits, PartialCounts, score_bounds
from specdec_core.search.outcome import Failure, SearchOutcome
from specdec_core.search.part_schedule import PartSchedule
from specdec_core.search.space import candidates
from specdec_core.search.strategies import make_objective
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipConfig
from tasks.agreement import dense_ids
from tasks.report import SearchReport

Order = Literal["model", "promise"]


@dataclass(frozen=True, slots=True)
class Item:
    """What one set does on one item."""

    counts: PartialCounts
    num_tokens: int

    @classmethod
    def of(cls, sample: SampleResult, agreed: float | None = None) -> Item:
        """Return the counts of a stored sample; `agreed` is its score where it has none."""
        trace = sample.trace.committed
        scored = sample.score if agreed is None else agreed
        score = (0, 0.0) if scored is None else (1, scored)
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
        samples = {
            row.skip: store.evaluations.samples(row.key)
            for row in rows
            if row.key is not None and row.error is None
        }
        dense = dense_ids(samples[""])
        items = {}
        for skip, found in samples.items():
            scores: Sequence[float | None] = [None] * len(found)
            if report.metric_name == "agreement":
                scores = agreement_scores(dense, found)
            pairs = zip(found, scores, strict=True)
            items[SkipConfig.parse(skip)] = [Item.of(sample, score) for sample, score in pairs]
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
        name = self.table.report.metric_name if has_metric else None
        search.narrow(skip, score_bounds(counts, self.table.num_items, limits, metric_name=name))


def whole_outcome(table: Table) -> SearchOutcome:
    """Return what the search finds where every set is evaluated whole."""
    search = table.search("model")
    while not search.is_finished:
        for skip in search.pending():
            search.tell(skip, table.failures.get(skip, table.total(skip).score))
    return search.outcome()


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

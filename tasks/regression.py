"""Has a benchmark become slower or worse than a stored baseline? Paired, with a least effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pydantic import Field

from db.cells import BenchmarkCell, CellSample
from db.schemas import Baseline, Interval
from db.store import Store
from specdec_core.bench.statistics import (
    RequestTimes,
    relative_change_of_pooled_ratios,
    speedup_interval,
)
from specdec_core.config.base import Record
from specdec_core.config.benchmark import BenchmarkConfig
from tasks.heldout_costs import to_interval

_MIN_PAIRS = 4


class Regression(Record):
    """One figure of one cell that fell below its baseline beyond doubt."""

    domain: str
    drafter: str
    measure: Literal["tokens_per_s", "acceptance_length"]
    change: Interval = Field(description="relative: now / baseline - 1")
    baseline_run_id: str
    min_effect: float = Field(description="relative loss that had to be exceeded")

    @property
    def text(self) -> str:
        """The regression in one sentence."""
        return (
            f"regression: {self.measure} of {self.drafter} in {self.domain} changed by "
            f"{self.change.estimate:+.1%} ({self.change.low:+.1%} to {self.change.high:+.1%}) "
            f"against run {self.baseline_run_id[:8]}"
        )


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """What comparing with the baseline gave."""

    regressions: tuple[Regression, ...] = ()
    baseline_run_id: str | None = None
    notes: tuple[str, ...] = ()


def compare_with_baseline(
    store: Store, config: BenchmarkConfig, run_id: str, cells: Sequence[BenchmarkCell]
) -> BaselineComparison:
    """Compare cells with those of the named baseline; the first whole run becomes the baseline."""
    if config.baseline is None:
        return BaselineComparison()
    baseline = store.baselines.get(config.baseline)
    if baseline is None:
        num_failed = sum(cell.status == "failed" for cell in cells)
        if num_failed:
            note = (
                f"{num_failed} cells failed: this run did not become baseline {config.baseline!r}"
            )
            return BaselineComparison(notes=(note,))
        made = Baseline(name=config.baseline, run_id=run_id, reason="first run under this name")
        store.baselines.set(made)
        return BaselineComparison(notes=(f"baseline {config.baseline!r} is this run",))
    if _prefill_of(store, baseline.run_id) != config.prefill:
        note = f"baseline {config.baseline!r} read prompts with other prefill: name another one"
        return BaselineComparison(baseline_run_id=baseline.run_id, notes=(note,))
    former = {_cell_key(cell): cell for cell in store.benchmarks.list(run_id=baseline.run_id)}
    regressions: list[Regression] = []
    notes: list[str] = []
    for cell in cells:
        other = former.get(_cell_key(cell))
        reason = _not_comparable(cell, other)
        if reason is not None or other is None:
            notes.append(f"{cell.domain}, {cell.drafter}: not compared, {reason}")
            continue
        regressions += find_regressions(other, cell, config.min_effect)
    return BaselineComparison(tuple(regressions), baseline.run_id, tuple(notes))


def _prefill_of(store: Store, run_id: str) -> str:
    """How a benchmark read prompts; those that do not say read them as they decoded."""
    run = store.runs.get(run_id)
    return str(run.config.get("prefill", "sparse")) if run else "sparse"


def find_regressions(
    before: BenchmarkCell, now: BenchmarkCell, min_effect: float
) -> list[Regression]:
    """Return the figures whose whole interval lies below a loss of `min_effect`.

    Items are paired; the median over repeats stands for an item, so that one slow repeat does
    not alarm. Identical data never does.
    """
    former = {sample.item_id: sample for sample in before.samples}
    pairs = [(former[s.item_id], s) for s in now.samples if s.item_id in former]
    timed = [pair for pair in pairs if all(_is_timed(sample) for sample in pair)]
    changes: dict[Literal["tokens_per_s", "acceptance_length"], Interval] = {}
    if len(timed) >= _MIN_PAIRS:
        ratio = to_interval(
            speedup_interval(_times([b for _, b in timed]), _times([a for a, _ in timed]))
        )
        changes["tokens_per_s"] = Interval(
            estimate=ratio.estimate - 1, low=ratio.low - 1, high=ratio.high - 1
        )
    stepped = [pair for pair in pairs if all(sample.num_steps > 0 for sample in pair)]
    if len(stepped) >= _MIN_PAIRS:
        changes["acceptance_length"] = to_interval(
            relative_change_of_pooled_ratios(
                _counts([a for a, _ in stepped]), _counts([b for _, b in stepped])
            )
        )
    return [
        Regression(
            domain=now.domain,
            drafter=now.drafter,
            measure=measure,
            change=change,
            baseline_run_id=before.run_id,
            min_effect=min_effect,
        )
        for measure, change in changes.items()
        if change.high < -min_effect
    ]


def _cell_key(cell: BenchmarkCell) -> tuple[str, str, str]:
    return cell.domain, cell.drafter, cell.skip


def _not_comparable(cell: BenchmarkCell, other: BenchmarkCell | None) -> str | None:
    """Why two cells cannot be compared, None if they can."""
    if other is None:
        return "the baseline has no such cell"
    if "failed" in (cell.status, other.status):
        return "one of the two failed"
    for name in ("target_identity", "dtype", "suite_hash", "hardware", "sampling"):
        if getattr(cell, name) != getattr(other, name):
            return f"{name} differs: name another baseline, the next run becomes it"
    return None


def _is_timed(sample: CellSample) -> bool:
    return sample.num_tokens > 1 and bool(sample.seconds) and min(sample.seconds) > 0


def _times(samples: Sequence[CellSample]) -> RequestTimes:
    return RequestTimes(
        [float(sample.num_tokens - 1) for sample in samples],
        [median(sample.seconds) for sample in samples],
    )


def _counts(samples: Sequence[CellSample]) -> tuple[list[float], list[float]]:
    """Committed tokens after the first, and verify steps."""
    tokens = [float(sample.num_tokens - 1) for sample in samples]
    return tokens, [float(sample.num_steps) for sample in samples]

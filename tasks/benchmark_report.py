"""What a benchmark run leaves: its cells, and each method over all rows together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from pydantic import Field

from db.cells import BenchmarkCell, CellFigures, marked
from db.schemas import Interval
from specdec_core.bench.strata import mean_domain_speedup
from specdec_core.config.base import Record
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.errors import MeasurementError
from specdec_core.records import ProofLevel
from tasks.figures import Measured, figures_of
from tasks.heldout_costs import to_interval
from tasks.regression import Regression

# From what speaks against a method most to what speaks for it most.
_LEVELS: tuple[ProofLevel, ...] = (
    "defect",
    "unproven",
    "lossy",
    "same-distribution",
    "up-to-ties",
    "exact",
)


class MethodOverall(Record):
    """One method over all rows that it was measured in."""

    drafter: str
    is_lossless: bool = True
    is_synthetic: bool = False
    level: ProofLevel = Field(description="the weakest of its cells")
    num_rows: int = Field(ge=1, description="rows measured; failed ones are left out")
    mean_speedup: Interval | None = Field(
        None,
        description="mean over rows of their speedups, each row weighing the same; the interval "
        "is over items",
    )
    figures: CellFigures = Field(description="all items of all rows pooled; the metric is left out")

    @property
    def method(self) -> str:
        """Drafter, with what must stand beside every figure of it."""
        return marked(self.drafter, is_lossless=self.is_lossless, is_synthetic=self.is_synthetic)


class BenchmarkReport(Record):
    """The result of one benchmark run; stored as the summary of its run, without raw timings."""

    run_id: str
    config: BenchmarkConfig
    cells: tuple[BenchmarkCell, ...]
    overall: tuple[MethodOverall, ...] = ()
    regressions: tuple[Regression, ...] = ()
    baseline_run_id: str | None = Field(None, description="run that was compared with")
    notes: tuple[str, ...] = ()
    plots: tuple[str, ...] = Field((), description="files of this run's plots, on its machine")
    num_evaluated: int
    num_memoised: int

    @property
    def dtype(self) -> str:
        """Type of the target in every cell; what was asked for where there is none."""
        return self.cells[0].dtype if self.cells else self.config.dtype

    @property
    def unsound(self) -> tuple[BenchmarkCell, ...]:
        """Cells that failed, or whose outputs are not what their method promises."""
        return tuple(
            cell for cell in self.cells if cell.certificate is None or not cell.certificate.is_sound
        )

    @property
    def is_good(self) -> bool:
        """Whether nothing fell below the baseline and, where asked for, everything is proven."""
        return not self.regressions and not (self.config.verify and self.unsound)


def overall_of(
    cells: Sequence[BenchmarkCell], measured: Sequence[Measured]
) -> MethodOverall | None:
    """Return one method over its rows; None where every row failed.

    Args:
        cells: Cells of one method that are done.
        measured: What each was made from.
    """
    if not cells:
        return None
    figures = figures_of(reduce(add, measured), None)
    levels = {cell.certificate.level for cell in cells if cell.certificate is not None}
    return MethodOverall(
        drafter=cells[0].drafter,
        is_lossless=cells[0].is_lossless,
        is_synthetic=cells[0].is_synthetic,
        level=next(level for level in _LEVELS if level in levels),
        num_rows=len(cells),
        mean_speedup=_mean_speedup(measured),
        figures=figures,
    )


def notes_on(cells: Sequence[BenchmarkCell]) -> list[str]:
    """Return what a reader must know about figures of these cells, one sentence each."""
    notes = []
    for cell in cells:
        figures = cell.figures
        if figures is None or figures.speedup is None:
            continue
        left_out = figures.num_items - figures.num_paired
        if left_out:
            notes.append(
                f"{cell.domain}, {cell.drafter}: {left_out} of {figures.num_items} items are not "
                "in the speed-up, their outputs have another length than the autoregressive ones"
            )
    return notes


def _mean_speedup(measured: Sequence[Measured]) -> Interval | None:
    if any(each.is_plain for each in measured):
        return None
    times = [each.times() for each in measured]
    usable = [pair for pair in times if pair is not None]
    try:
        return to_interval(mean_domain_speedup(usable)) if usable else None
    except MeasurementError:
        return None

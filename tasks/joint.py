"""Several stored runs beside each other: nothing is evaluated, all is read from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from db.cells import BenchmarkCell
from db.schemas import HeldoutComparison, Interval
from db.store import Store
from specdec_core.bench.statistics import relative_change_of_pooled_ratios
from specdec_core.config.base import Record
from specdec_core.errors import ConfigError, MeasurementError
from specdec_core.records import SampleResult
from specdec_core.skip import SkipConfig
from tasks.benchmark_report import BenchmarkReport
from tasks.heldout import acceptance_columns
from tasks.heldout_costs import to_interval
from tasks.plot_style import Plot, draw_legend, new_figure, style_of
from tasks.report import SearchReport
from tasks.run_files import slug
from tasks.search_plots import ablation_figure, heldout_figure, names_of
from tasks.stored import finished_run, read_report
from tasks.sweep_report import SweepReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS = 0.8  # of the space between two drafters


class DrafterAcceptance(Record):
    """Acceptance of one drafter on one row of two benchmarks: dense target and sparse target."""

    target: str
    domain: str
    drafter: str
    skip: str = Field(description="of the sparse benchmark")
    num_items: int = Field(ge=1, description="items that both answered")
    dense: float = Field(description="committed tokens per verify step, pooled")
    sparse: float
    change: Interval | None = Field(None, description="sparse / dense - 1, paired by item")
    metric_dense: float | None = None
    metric_sparse: float | None = None


@dataclass(frozen=True, slots=True)
class Joint:
    """The reports of several runs, by kind, in the order in which they were named."""

    run_ids: tuple[str, ...]
    searches: tuple[SearchReport, ...]
    sweeps: tuple[SweepReport, ...]
    drafters: tuple[DrafterAcceptance, ...]


def read_joint(store: Store, run_ids: Sequence[str]) -> Joint:
    """Return what some completed runs found.

    Raises:
        ConfigError: if a run has no report, is named twice, or benchmarks do not pair.
        RunNotFoundError: if a run is not stored.
    """
    if len(set(run_ids)) != len(run_ids):
        raise ConfigError("a run is named twice: name each run once")
    reports = [read_report(finished_run(store, run_id)) for run_id in run_ids]
    benchmarks = [report for report in reports if isinstance(report, BenchmarkReport)]
    drafters = tuple(acceptance_by_drafter(store, benchmarks))
    if benchmarks and not drafters:
        raise ConfigError(
            "the benchmarks share no drafter and domain of a dense and a sparse target: run "
            "`specdec bench` with the same methods, domains and items once without and once with "
            "--skip"
        )
    searches = tuple(report for report in reports if isinstance(report, SearchReport))
    sweeps = tuple(report for report in reports if isinstance(report, SweepReport))
    return Joint(tuple(run_ids), searches, sweeps, drafters)


def acceptance_by_drafter(
    store: Store, reports: Sequence[BenchmarkReport]
) -> Iterator[DrafterAcceptance]:
    """Yield every drafter and row that was measured on the dense and on a sparse target.

    Source: TSS (its figure of drafters).
    """
    cells = [cell for report in reports for cell in report.cells if cell.figures is not None]
    dense = {_place(cell): cell for cell in cells if not cell.skip}
    for sparse in cells:
        plain = dense.get(_place(sparse))
        if sparse.skip and plain is not None and sparse.drafter != "none":
            found = _paired(store, plain, sparse)
            if found is not None:
                yield found


def joint_plots(joint: Joint) -> Iterator[Plot]:
    """Yield the joint figures: single units across domains, held-out changes, drafters."""
    with_units = [report for report in joint.searches if report.ablation]
    targets = list(dict.fromkeys(report.target for report in with_units))
    for target in targets:
        own = [report for report in with_units if report.target == target]
        name = "ablation" if len(targets) == 1 else f"ablation-{slug(target)}"
        yield name, lambda own=own: ablation_figure(own)  # type: ignore[misc]  # bound now
    rows = list(_compared(joint))
    if rows:
        yield "heldout", lambda: heldout_figure(rows)
    for target, domain in dict.fromkeys((row.target, row.domain) for row in joint.drafters):
        chosen = [row for row in joint.drafters if (row.target, row.domain) == (target, domain)]
        name = f"drafters-{slug(target)}-{slug(domain)}"
        yield name, lambda chosen=chosen: drafters_figure(chosen)  # type: ignore[misc]  # bound now


def drafters_figure(rows: Sequence[DrafterAcceptance]) -> Figure:
    """Acceptance length of each drafter on the dense target and on the sparse ones, one domain."""
    drafters = list(dict.fromkeys(row.drafter for row in rows))
    skips = list(dict.fromkeys(row.skip for row in rows))
    longest = max(map(len, drafters))
    figure, axes = new_figure(width=5.0 + 0.065 * longest, height=1.6 + 0.5 * len(drafters))
    axes.set_yticks(range(len(drafters)), drafters, fontsize=8)
    by_place = {(row.drafter, row.skip): row for row in rows}
    height = _BARS / (len(skips) + 1)
    for number, skip in enumerate(["", *skips]):
        places, lengths = [], []
        for place, drafter in enumerate(drafters):
            row = by_place.get((drafter, skip or skips[0]))
            if row is not None:
                places.append(place + (number - len(skips) / 2) * height)
                lengths.append(row.sparse if skip else row.dense)
        label = f"skipping {skip}" if skip else "dense"
        axes.barh(places, lengths, height=height, label=label, color=style_of(number)["color"])
        for y, length in zip(places, lengths, strict=True):
            axes.text(length, y, f" {length:.2f}", va="center", fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("acceptance length, tokens per step")
    items = sorted({row.num_items for row in rows})
    axes.set_title(f"{rows[0].domain} on {rows[0].target}, {items[-1]} items", fontsize=10)
    draw_legend(axes)
    return figure


def _compared(joint: Joint) -> Iterator[tuple[str, HeldoutComparison]]:
    """Every held-out comparison with a name."""
    for name, report in zip(names_of(joint.searches), joint.searches, strict=True):
        if report.heldout is not None:
            label = SkipConfig.parse((report.compared or report.answer).skip).label
            yield f"{name}: {label}", report.heldout
    for sweep in joint.sweeps:
        for variant in sweep.variants:
            if variant.heldout is not None:
                yield f"{sweep.domain}, {variant.name}: {variant.answer.skip}", variant.heldout


def _place(cell: BenchmarkCell) -> tuple[str, ...]:
    """What must be the same for two cells to be compared."""
    return (
        cell.target_identity,
        cell.dtype,
        cell.domain,
        cell.suite_hash,
        cell.drafter,
        cell.sampling,
    )


def _paired(store: Store, plain: BenchmarkCell, sparse: BenchmarkCell) -> DrafterAcceptance | None:
    assert plain.figures is not None
    assert sparse.figures is not None
    columns = [_by_item(store, cell) for cell in (plain, sparse)]
    shared = [item for item in columns[0] if item in columns[1]]
    if not shared:
        return None
    before, after = (acceptance_columns([found[item] for item in shared]) for found in columns)
    try:
        change = to_interval(relative_change_of_pooled_ratios(before, after))
    except MeasurementError:
        change = None
    return DrafterAcceptance(
        target=sparse.target,
        domain=sparse.domain,
        drafter=sparse.drafter,
        skip=sparse.skip,
        num_items=len(shared),
        dense=_length(before),
        sparse=_length(after),
        change=change,
        metric_dense=plain.figures.metric,
        metric_sparse=sparse.figures.metric,
    )


def _by_item(store: Store, cell: BenchmarkCell) -> dict[str, SampleResult]:
    samples = store.evaluations.samples(cell.evaluation_key) if cell.evaluation_key else ()
    return {sample.item_id: sample for sample in samples}


def _length(columns: tuple[Sequence[float], Sequence[float]]) -> float:
    """Committed tokens over steps; 1 where outputs of one token need no step at all."""
    committed, steps = columns
    return sum(committed) / sum(steps) if sum(steps) else 1.0

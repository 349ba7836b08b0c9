"""The grid of a benchmark: rows of prompts by methods, everything checked before a model loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specdec_core.config.benchmark import BenchmarkConfig, Topic
from specdec_core.config.domains import check_domain
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.data.split import sample_ids
from specdec_core.data.suites import BUILTIN, PUBLIC_SETS
from specdec_core.errors import ConfigError, DataError
from specdec_core.skip import SkipConfig
from tasks.cells import BASELINE_METHOD, CellPlan
from tasks.prepare import Preparer, Workload

Row = tuple[CellPlan, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells, autoregressive decoding first in each, and what was not as asked for."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def make_grid(config: BenchmarkConfig, settings: Settings, prepare_workload: Preparer) -> Grid:
    """Return the cells of a benchmark, row by row.

    Raises:
        ConfigError: if a domain, suite, skip set or number of items cannot be used, or two suites
            would be one row.
    """
    rows: dict[str, Row] = {}
    notes: list[str] = []
    for text in config.domains:
        topic = Topic.parse(text)
        suite = topic.suite or config.suite
        check_domain(topic.domain, suite)
        whole = prepare_workload(config.target, topic.domain, suite, config.dtype, settings)
        SkipConfig.parse(config.skip).validate(whole.target.num_layers)
        if _is_stand_in(whole, suite):
            notes.append(f"{text}: the suite is not here, packaged prompts of its domain stood in")
        for category, workload in _parts(whole, topic):
            label = _label(topic, whole, category)
            if label in rows:
                _check_same(label, rows[label][0].workload, workload)
                notes.append(f"{text}: {label} is a row already")
                continue
            rows[label] = _row(config, label, workload)
    return Grid(tuple(rows.values()), tuple(notes))


def _check_same(label: str, first: Workload, second: Workload) -> None:
    if first.suite.content_hash != second.suite.content_hash:
        raise ConfigError(
            f"{first.suite.source} and {second.suite.source} are other prompts under one name, "
            f"{label}: rename one of the files, or measure them in two runs"
        )


def alternating(cells: Row) -> list[EvaluationRequest]:
    """Return all requests of a row, repeat by repeat, every second repeat backwards."""
    ordered: list[EvaluationRequest] = []
    for number in range(len(cells[0].requests)):
        repeat = [cell.requests[number] for cell in cells]
        ordered += repeat if number % 2 == 0 else repeat[::-1]
    return ordered


def _is_stand_in(workload: Workload, suite: str | None) -> bool:
    return workload.suite.source == BUILTIN and suite not in (None, BUILTIN)


def _label(topic: Topic, whole: Workload, category: str | None) -> str:
    """The domain, and where its prompts are from if that was asked for."""
    if topic.suite is None:
        return topic.domain
    name = topic.suite if topic.suite in PUBLIC_SETS else whole.suite.name
    if whole.suite.source == BUILTIN:
        name = BUILTIN
    return f"{topic.domain}@{name}" + (f"#{category}" if category else "")


def _parts(whole: Workload, topic: Topic) -> Iterator[tuple[str | None, Workload]]:
    """The workload, or its categories as the topic asks for them."""
    if topic.category is None:
        yield None, whole
        return
    names: Sequence[str] = (topic.category,)
    if topic.category == "*":
        names = whole.suite.categories
        if not names:
            raise DataError(
                f"suite {whole.suite.name!r} has no categories: leave #* out, or give items a "
                "meta.category"
            )
    for name in names:
        yield name, replace(whole, suite=whole.suite.of_category(name))


def _row(config: BenchmarkConfig, label: str, workload: Workload) -> Row:
    ids = sample_ids(workload.suite, config.num_items)
    return tuple(
        CellPlan(label, workload, _repeats(config, workload, method, ids))
        for method in (BASELINE_METHOD, *config.methods)
    )


def _repeats(
    config: BenchmarkConfig, workload: Workload, method: str, ids: Sequence[str]
) -> tuple[EvaluationRequest, ...]:
    return tuple(
        workload.request(
            skip=config.skip,
            prefill=config.prefill,
            drafter=method,
            item_ids=ids,
            max_new_tokens=config.max_new_tokens,
            is_timed=True,
            repetition=f"{config.session}/{number}",
            sampling=config.sampling,
        )
        for number in range(config.repeats)
    )

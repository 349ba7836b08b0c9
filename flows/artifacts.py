"""Everything a flow leaves on its Prefect page: progress, tables, charts, events."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Iterable
from typing import cast
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event

from flows import report as texts
from flows.benchmark_tables import benchmark_markdown, cell_table, headline
from flows.progress import describe, percent
from flows.report import Link
from flows.search_tables import ablation_table, case_count_table, result_table
from flows.sweep_tables import answer_table, selection_table, sweep_markdown
from flows.views import TableView
from tasks.benchmark_report import BenchmarkReport
from tasks.plot_style import Plot, png_of
from tasks.report import Progress, SearchReport
from tasks.run_files import slug
from tasks.search_plots import search_plots, sweep_plots
from tasks.sweep_report import SweepReport

logger = logging.getLogger(__name__)

# Each update is a request to the Prefect server.
_UPDATE_INTERVAL_S = 2.0


class ProgressBar:
    """Prefect progress artifact that is updated every few seconds, however often it is told.

    Best effort: a server that does not answer is logged, and asked again with the next update.
    """

    def __init__(self, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the bar; `key` becomes part of its address."""
        self._clock = clock
        self._key = artifact_key(key, "progress")
        self._artifact_id: UUID | None = None
        self._show(0.0, "starting")
        self._next_update = clock()
        self._stage: str | None = None

    def __call__(self, progress: Progress) -> None:
        """Show how far the run is."""
        is_new_stage = progress.stage != self._stage
        if not is_new_stage and self._clock() < self._next_update:
            return
        self._stage = progress.stage
        self._next_update = self._clock() + _UPDATE_INTERVAL_S
        self._show(percent(progress), describe(progress))

    def finish(self, text: str) -> None:
        """Show the bar as full."""
        self._show(100.0, text)

    def _show(self, share: float, text: str) -> None:
        try:
            if self._artifact_id is not None:
                update_progress_artifact(self._artifact_id, share, text)
                return
            created = create_progress_artifact(share, self._key, text)
            self._artifact_id = cast(UUID, created)  # a coroutine only inside an event loop
        except Exception as error:  # noqa: BLE001 - a picture of the work must not cost the work
            logger.warning("progress is not shown (%s: %s)", type(error).__name__, error)


def artifact_key(*parts: str) -> str:
    """Return a key of the characters that Prefect allows: lower case, digits, dashes."""
    return slug("-".join(parts))


def publish_search(report: SearchReport, found: tuple[Link, ...]) -> None:
    """Leave report, results, levels, single units, front, cases and plots as artifacts."""
    name = f"tss-search-{report.config.domain}"
    create_markdown_artifact(
        texts.to_markdown(report, found), artifact_key(name, "report"), report.headline
    )
    for level, view in zip(report.levels, texts.level_tables(report), strict=True):
        publish_table(view, artifact_key(name, f"level-{level.number}"))
    publish_table(texts.front_table(report), artifact_key(name, "front"))
    publish_table(result_table([report]), artifact_key(name, "results"))
    publish_table(ablation_table(report), artifact_key(name, "ablation"))
    publish_plots(search_plots(report), name)
    counts = case_count_table([report])
    parts = [counts.to_markdown()] if counts.rows else []
    cases = "\n\n".join([*parts, texts.cases_markdown(report)])
    create_markdown_artifact(cases, artifact_key(name, "cases"), "Dense and sparse answers")


def publish_table(view: TableView, key: str) -> None:
    """Leave one table as an artifact."""
    create_table_artifact(view.to_records(), key, view.title)


def publish_markdown(text: str, key: str, title: str) -> None:
    """Leave a page as an artifact."""
    create_markdown_artifact(text, key, title)


def publish_plots(plots: Iterable[Plot], name: str) -> None:
    """Leave plots as artifacts, each picture inside its own address."""
    for plot in plots:
        image = f"data:image/png;base64,{base64.b64encode(png_of(plot)).decode()}"
        create_image_artifact(image, artifact_key(name, plot[0], "chart"), plot[0])


def emit_search(report: SearchReport) -> None:
    """Tell automations what a search found."""
    emit_event(
        f"specdec.search.{report.verdict.replace(' ', '-')}",
        resource={
            "prefect.resource.id": f"specdec.profile.{report.profile.id}",
            "prefect.resource.name": f"{report.target} {report.config.domain}",
        },
        payload={
            "run_id": report.run_id,
            "domain": report.config.domain,
            "target": report.target,
            "skip": report.profile.skip,
            "version": report.profile.version,
            "is_new": report.profile.is_new,
            "headline": report.headline,
        },
    )


def publish_sweep(report: SweepReport) -> None:
    """Leave the tables of answers, their plot and the whole report as artifacts of the run."""
    name = f"{report.kind}-{report.domain}"
    publish_table(answer_table(report), artifact_key(name, "answers"))
    publish_table(selection_table(report), artifact_key(name, "selection"))
    publish_plots(sweep_plots(report), name)
    create_markdown_artifact(sweep_markdown(report), artifact_key(name, "report"), report.headline)


def publish_benchmark(report: BenchmarkReport, name: str) -> None:
    """Leave the cells and the whole report as artifacts of the run."""
    publish_table(cell_table(report), artifact_key(name, "cells"))
    create_markdown_artifact(
        benchmark_markdown(report), artifact_key(name, "report"), headline(report)
    )


def emit_regressions(report: BenchmarkReport) -> None:
    """Tell automations about every figure that fell below its baseline."""
    for regression in report.regressions:
        emit_event(
            "specdec.quality.regression",
            resource={
                "prefect.resource.id": f"specdec.run.{report.run_id}",
                "prefect.resource.name": f"{regression.drafter} in {regression.domain}",
            },
            payload={**regression.model_dump(mode="json"), "text": regression.text},
        )

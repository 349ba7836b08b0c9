"""A trained draft in the real decode loop, and whether it does there what training says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from db.cells import BenchmarkCell
from db.store import Store
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.draft_evaluation import DraftedShape, DraftEvaluationConfig
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.learned_drafters import LearnedOptions
from specdec_core.config.model_drafters import DraftModel, DraftTree
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.records import SampleResult
from tasks.benchmark import run_benchmark
from tasks.benchmark_report import BenchmarkReport
from tasks.cells import CellPlan
from tasks.draft_benchmarks import benchmark_of, methods_of
from tasks.draft_report import DraftCell, DraftEvaluation, PromptAcceptance
from tasks.drafter_data import drafter_data
from tasks.grid import Grid, Row, make_grid
from tasks.prepare import Preparer, TargetInfo, prepare
from tasks.template_check import check_template
from tasks.training_setup import TrainingSetup

if TYPE_CHECKING:
    from tasks.draft_expectation import Expectation

logger = logging.getLogger(__name__)

KIND = "draft-evaluation"


def evaluate_draft(
    config: DraftEvaluationConfig,
    setup: TrainingSetup,
    draft_folder: Path,
    *,
    reference_folder: Path | None = None,
    prepare_workload: Preparer = prepare,
) -> DraftEvaluation:
    """Decode prompts with a draft, paired with autoregressive decoding, and compare acceptance.

    Each temperature is a benchmark run of its own. What the store has is not decoded again. The
    expected acceptance is computed afterwards in this process, from the training pass of the
    reference over the very outputs that were decoded, at the places where steps tried the draft;
    see `specdec_core.bench.depths` for why these, and no other windows, must agree.

    Args:
        config: What is decoded, and the tolerance.
        setup: Where things run and are kept, and who hears of them.
        draft_folder: The draft as decoding loads it.
        reference_folder: The draft as training left it, of which the expected acceptance is, where
            `draft_folder` is another copy that may differ from it. None for `draft_folder` itself,
            as training runs have it: masks, positions and caches of decoding are then checked
            against the training pass, and files by their hashes alone.
        prepare_workload: Resolves target and suites.

    Raises:
        ConfigError: if something cannot be used; nothing is stored if found before the start.
        SearchCancelledError: if told to stop.
        StoreError: if a database cannot be used.
        WorkerLostError: if no workers can be had.
    """
    settings, log = setup.settings, setup.log
    plan = _plan(config, settings, prepare_workload, draft_folder, reference_folder)
    target = plan.target
    templates = check_template(plan.reference, target.reference, settings)
    warning = templates.warning(str(plan.draft), target.reference)
    if warning:
        log(warning)
    reports = _measure(plan, setup, prepare_workload)
    log("comparing what steps accepted with what training expects of the same places")
    maker = _CellMaker(setup.store, _expectation(config, plan, settings), plan.methods)
    notes = [note for report in reports.values() for note in report.notes]
    return DraftEvaluation(
        draft=str(plan.draft),
        draft_identity=plan.identity_of(plan.draft, settings),
        reference_identity=plan.identity_of(plan.reference, settings),
        target=target.reference,
        target_identity=target.identity,
        config=config,
        cells=tuple(
            cell
            for temperature, report in reports.items()
            for row in plan.grids[temperature].rows
            for cell in maker.of_row(temperature, report, row)
        ),
        template_hash=templates.trained,
        served_template_hash=templates.served,
        run_ids=tuple(report.run_id for report in reports.values()),
        notes=tuple(dict.fromkeys([*([warning] if warning else []), *notes])),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is decoded, checked before a model is loaded.

    Attributes:
        draft: Folder that decodes.
        reference: Folder that the expectation is from.
        methods: Canonical drafter texts by shape.
        benches: Benchmark of each temperature.
        grids: Its cells.
    """

    draft: Path
    reference: Path
    methods: Mapping[DraftedShape, str]
    benches: Mapping[float, BenchmarkConfig]
    grids: Mapping[float, Grid]

    @property
    def target(self) -> TargetInfo:
        """The target of all of them."""
        return next(iter(self.grids.values())).rows[0][0].workload.target

    def identity_of(self, folder: Path, settings: Settings) -> str:
        """Return what identifies the draft in `folder`."""
        drafter = parse_drafter(next(iter(self.methods.values())))
        assert isinstance(drafter, DraftModel | DraftTree | LearnedOptions)
        is_model = isinstance(drafter, DraftModel | DraftTree)
        place = f"path:{folder}" if is_model else str(folder)
        return drafter_data(
            drafter.model_copy(update={"model": place}),
            None,
            target=self.target.reference,
            tokenizer_identity=self.target.tokenizer_identity,
            settings=settings,
        )


def _plan(
    config: DraftEvaluationConfig,
    settings: Settings,
    prepare_workload: Preparer,
    draft_folder: Path,
    reference_folder: Path | None,
) -> _Plan:
    from specdec_core.training.reference import draft_form

    draft = draft_folder.expanduser().absolute()
    reference = (reference_folder or draft).expanduser().absolute()
    kind = draft_form(draft)
    if draft_form(reference) != kind:
        raise ConfigError(
            f"{draft} holds a draft of kind {kind!r}, but {reference} another: give the folder "
            "that training left"
        )
    methods = methods_of(kind, draft, config)
    benches = {t: benchmark_of(config, methods, t) for t in config.temperatures}
    grids = {t: make_grid(bench, settings, prepare_workload) for t, bench in benches.items()}
    return _Plan(draft, reference, methods, benches, grids)


def _measure(
    plan: _Plan, setup: TrainingSetup, prepare_workload: Preparer
) -> dict[float, BenchmarkReport]:
    """Run the benchmark of every temperature."""
    tracker = setup.make_tracker()
    return {
        temperature: run_benchmark(
            bench,
            setup.settings,
            setup.store,
            setup.start_pool,
            tracker=tracker,
            log=setup.log,
            progress=setup.progress,
            should_stop=setup.should_stop,
            kind=KIND,
            prepare_workload=prepare_workload,
        )
        for temperature, bench in plan.benches.items()
    }


def _expectation(config: DraftEvaluationConfig, plan: _Plan, settings: Settings) -> Expectation:
    """Load target and reference, which say what is expected."""
    from specdec_core.models.reference import resolve_model
    from tasks.draft_expectation import Expectation

    target = plan.target
    return Expectation.load(
        config,
        resolve_model(target.reference, settings.cache_dir, logger.info),
        plan.reference,
        dtype=target.dtype,
        device=target.device,
        settings=settings,
    )


@dataclass(frozen=True, slots=True)
class _CellMaker:
    """Makes the cells of measured rows."""

    store: Store
    expectation: Expectation
    methods: Mapping[DraftedShape, str]

    def of_row(self, temperature: float, report: BenchmarkReport, row: Row) -> list[DraftCell]:
        """Return one cell per shape of a row."""
        measured = {cell.drafter: cell for cell in report.cells if cell.domain == row[0].label}
        plans = {plan.method: plan for plan in row}
        return [
            self._cell(temperature, shape, measured[method], plans[method], report.run_id)
            for shape, method in self.methods.items()
        ]

    def _cell(
        self,
        temperature: float,
        shape: DraftedShape,
        cell: BenchmarkCell,
        plan: CellPlan,
        run_id: str,
    ) -> DraftCell:
        request = plan.requests[0]
        made = DraftCell(
            domain=cell.domain,
            shape=shape,
            temperature=temperature,
            drafter=cell.drafter,
            run_id=run_id,
            evaluation_key=request.key,
            error=cell.error,
            is_lossless=cell.is_lossless,
            figures=cell.figures,
        )
        if cell.figures is None:
            return made
        samples = self.store.evaluations.samples(request.key)
        depths, anywhere = self.expectation.compare(plan.workload, request, shape, samples)
        num_steps = sum(len(sample.trace.accepted) for sample in samples)
        accepted = sum(sum(sample.trace.accepted) for sample in samples)
        return made.model_copy(
            update={
                "accepted_per_step": accepted / num_steps if num_steps else None,
                "depths": depths,
                "expected_anywhere": anywhere,
                "samples": _prompts(samples, cell),
            }
        )


def _prompts(
    samples: tuple[SampleResult, ...] | list[SampleResult], cell: BenchmarkCell
) -> tuple[PromptAcceptance, ...]:
    return tuple(
        PromptAcceptance(
            item_id=sample.item_id,
            num_steps=len(sample.trace.accepted),
            num_tokens=len(sample.token_ids),
            accepted=sample.trace.accepted,
            seconds=timed.seconds,
            baseline_seconds=timed.baseline_seconds,
        )
        for sample, timed in zip(samples, cell.samples, strict=True)
    )

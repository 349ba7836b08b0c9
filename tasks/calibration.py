"""Calibration: the step-time curve t(n) of a target and what its layers do."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from db.schemas import CalibrationRecord, LayerStatistics, StepTime
from db.store import Store
from specdec_core.config.build import build_config
from specdec_core.config.calibration import CalibrationConfig, CalibrationRequest
from specdec_core.config.domains import search_defaults
from specdec_core.config.settings import Settings
from specdec_core.data.records import Suite
from specdec_core.errors import (
    ConfigError,
    MeasurementError,
    SearchCancelledError,
    WorkerLostError,
)
from specdec_core.skip import SkipConfig, UnitKind
from tasks.answers import MAX_ATTEMPTS
from tasks.jobs import JobFailure, StopCheck
from tasks.pool import PoolFactory, WorkerPool
from tasks.prepare import Preparer, Workload, prepare
from tasks.report import OnProgress, Progress
from tasks.run_rows import note_end, start_run
from tasks.runtime import LogLine, run_log

if TYPE_CHECKING:
    from specdec_core.models.target import Target

logger = logging.getLogger(__name__)

KIND = "calibrate"


def calibration_config(domain: str, given: Mapping[str, Any]) -> CalibrationConfig:
    """Return the resolved calibration; the target is that of the domain where none is given.

    Raises:
        ConfigError: for an unknown domain, or a value outside its range.
    """
    of_domain = search_defaults(domain, given.get("suite"))
    defaults: dict[str, Any] = {
        name: of_domain[name] for name in ("domain", "target") if name in of_domain
    }
    return build_config(CalibrationConfig, defaults, given)


def calibration_request(config: CalibrationConfig, workload: Workload) -> CalibrationRequest:
    """Return the request of one calibration: the first prompts of the suite, by id."""
    target, suite = workload.target, workload.suite
    return CalibrationRequest(
        target=target.reference,
        target_identity=target.identity,
        dtype=target.dtype,
        device=target.device,
        nodes=config.nodes,
        context=config.context,
        repeats=config.repeats,
        suite=suite.source,
        suite_hash=suite.content_hash,
        domain=suite.domain,
        item_ids=tuple(sorted(item.id for item in suite.items)[: config.num_prompts]),
    )


def run_calibration(
    config: CalibrationConfig,
    settings: Settings,
    store: Store,
    start_pool: PoolFactory,
    *,
    log: LogLine = logger.info,
    progress: OnProgress = lambda _progress: None,
    should_stop: StopCheck = lambda: False,
    flow_run_id: str | None = None,
    prepare_workload: Preparer = prepare,
) -> CalibrationRecord:
    """Measure step time and layer statistics in a worker, store them and return the record.

    It always measures anew: the record of the same target and hardware is replaced.

    Raises:
        ConfigError: if target, suite or type cannot be used.
        MeasurementError: if the measurement failed.
        SearchCancelledError: if told to stop.
        StoreError: if the database cannot be used.
        WorkerLostError: if no worker can be had or it dies repeatedly.
    """
    workload = prepare_workload(config.target, config.domain, config.suite, config.dtype, settings)
    request = calibration_request(config, workload)
    workload.register(store)
    run = start_run(store, KIND, config.domain, config, settings, flow_run_id)
    progress(Progress(stage="calibration", done=0, total=1, text=workload.target.reference))
    with note_end(store, run.id), run_log(settings, run.id), start_pool(should_stop) as pool:
        measured = _measure(pool, request, should_stop)
        stored = store.calibrations.put(measured.model_copy(update={"run_id": run.id}))
        summary = stored.model_dump(mode="json")
        store.runs.update(run.id, status="completed", summary=summary, error=None)
    progress(Progress(stage="calibration", done=1, total=1, text=workload.target.reference))
    times = ", ".join(f"{1000 * one.median_s:.1f} ms at {one.num_nodes}" for one in stored.curve)
    log(f"{stored.target} on {stored.hardware}: one step takes {times} nodes")
    return stored


def _measure(
    pool: WorkerPool, request: CalibrationRequest, should_stop: StopCheck
) -> CalibrationRecord:
    pool.submit(request)
    attempts = 0
    while True:
        for completed in pool.wait(1.0):
            if isinstance(completed.result, CalibrationRecord):
                return completed.result
            assert isinstance(completed.result, JobFailure)
            attempts += 1
            _raise_or_retry(completed.result, attempts)
            pool.submit(request)
        if should_stop():
            pool.stop()
            raise SearchCancelledError("the calibration was stopped on request")


def _raise_or_retry(failure: JobFailure, attempts: int) -> None:
    if failure.kind == "cancelled":
        raise SearchCancelledError(failure.message)
    if failure.kind == "setup":
        raise ConfigError(f"a model worker cannot work: {failure.message}")
    if failure.kind == "lost" and attempts >= MAX_ATTEMPTS:
        raise WorkerLostError(f"the calibration ended {attempts} workers: {failure.message}")
    if failure.kind != "lost":
        raise MeasurementError(
            f"the calibration failed ({failure.error_type}: {failure.message}): lower the context "
            "or the largest number of nodes"
        )


def calibrate(
    request: CalibrationRequest, target: Target, suite: Suite, should_stop: StopCheck
) -> CalibrationRecord:
    """Measure a loaded target; this is what a worker does.

    Args:
        request: What to measure.
        target: The loaded target.
        suite: Where the prompts of the layer statistics come from.
        should_stop: Asked between the two parts.

    Raises:
        SearchCancelledError: if `should_stop` said so.
    """
    from specdec_core.decoding.timing import synchronizer
    from specdec_core.profiling.hardware import describe_hardware
    from specdec_core.profiling.step_time import measure_step_time

    curve = measure_step_time(
        target.view(SkipConfig.parse(request.skip)),
        request.nodes,
        context=request.context,
        repeats=request.repeats,
        synchronize=synchronizer(target.device),
    )
    if should_stop():
        raise SearchCancelledError("the calibration was stopped on request")
    return CalibrationRecord(
        target=request.target,
        target_identity=request.target_identity,
        dtype=request.dtype,
        hardware=describe_hardware(target.device, has_own_kernels=target.engine is not None),
        skip=request.skip,
        context_tokens=request.context,
        curve=tuple(
            StepTime(num_nodes=point.nodes, median_s=point.median_s, seconds=point.seconds)
            for point in curve.points
        ),
        layers=_layers(request, target, suite) if request.item_ids else (),
    )


def _layers(
    request: CalibrationRequest, target: Target, suite: Suite
) -> tuple[LayerStatistics, ...]:
    """What each half of each layer does to the residual stream, one record per layer."""
    from specdec_core.data.templates import get_template, render_prompts
    from specdec_core.profiling.layers import layer_statistics

    template = get_template(request.domain, target.kind)
    prompts = render_prompts(suite.select(request.item_ids), template, target.tokenizer)
    cosines: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for found in layer_statistics(target, prompts.ids):
        (unit,) = SkipConfig.parse(found.unit).units
        name = "attention" if unit.kind is UnitKind.ATTENTION else "mlp"
        cosines[unit.layer][f"{name}_similarity"] = found.cosine
    return tuple(LayerStatistics(layer=layer, **found) for layer, found in cosines.items())

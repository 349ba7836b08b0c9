"""Step times for the strategy ``throughput``: a stored calibration, measured first if needed."""

from __future__ import annotations

import logging
import platform
from dataclasses import dataclass

from db.schemas import CalibrationRecord
from db.store import Store
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.dtype import ComputeType, compute_type, has_int8_weights
from specdec_core.config.settings import Settings
from specdec_core.errors import MeasurementError
from specdec_core.search.step_model import StepTimeModel, half_bytes
from tasks.calibration import run_calibration
from tasks.jobs import StopCheck
from tasks.plan import Plan
from tasks.pool import PoolFactory
from tasks.prepare import Preparer, Workload, prepare
from tasks.report import StepTimeSource
from tasks.runtime import LogLine

logger = logging.getLogger(__name__)

_BYTES: dict[ComputeType, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step-time model and the calibration that it rests on."""

    model: StepTimeModel
    source: StepTimeSource


def step_times(
    plan: Plan,
    settings: Settings,
    store: Store,
    start_pool: PoolFactory,
    *,
    log: LogLine = logger.info,
    should_stop: StopCheck = lambda: False,
    prepare_workload: Preparer = prepare,
) -> StepTimes | None:
    """Return the step-time model of a search and what it rests on; None where none is needed.

    The newest dense calibration of this target on this machine counts; where there is none, one
    is measured and stored before the search, so that no clock runs inside it.

    Raises:
        ConfigError: if the target cannot be calibrated.
        MeasurementError: if the measurement failed, or its record cannot be found again.
        SearchCancelledError: if told to stop.
        WorkerLostError: if no worker can be had.
    """
    if plan.config.strategy != "throughput":
        return None
    found = stored_calibration(plan.workload, settings, store)
    if found is None:
        log(f"no step times of {plan.config.target} are stored for this machine: measuring them")
        run_calibration(
            CalibrationConfig(
                domain=plan.config.domain,
                target=plan.config.target,
                suite=plan.config.suite,
                dtype=plan.config.dtype,
            ),
            settings,
            store,
            start_pool,
            log=log,
            should_stop=should_stop,
            prepare_workload=prepare_workload,
        )
        found = stored_calibration(plan.workload, settings, store)
    if found is None:
        raise MeasurementError(
            f"the step times of {plan.config.target} were measured but are not those of this "
            "machine and its settings: run the search where its workers are"
        )
    return StepTimes(step_model(found, plan.workload, settings), _source(found))


def stored_calibration(
    workload: Workload, settings: Settings, store: Store
) -> CalibrationRecord | None:
    """Return the newest dense calibration of this target that this machine's settings made.

    Hardware is described by workers only; so it is matched through the run that measured it:
    the same host, threads and Ray address, the same device, and no own kernels where none are
    asked for.
    """
    target = workload.target
    for record in store.calibrations.list(target=target.identity, limit=None):
        run = store.runs.get(record.run_id) if record.run_id else None
        is_own = "own" in record.hardware and "kernels" in record.hardware
        if (
            run is not None
            and (record.dtype, record.skip) == (target.dtype, "")
            and ("CUDA" in record.hardware) == target.device.startswith("cuda")
            and not (is_own and settings.kernels == "torch")
            and run.provenance.get("host") == platform.node()
            and run.provenance.get("threads") == settings.threads
            and run.provenance.get("ray_address") == settings.ray_address
        ):
            return record
    return None


def step_model(record: CalibrationRecord, workload: Workload, settings: Settings) -> StepTimeModel:
    """Return the model of a calibrated target: its curve, and the bytes of its halves."""
    from specdec_core.models.architecture import read_architecture
    from specdec_core.models.reference import resolve_model

    target = workload.target
    resolved = resolve_model(target.reference, settings.cache_dir, logger.info)
    shape = read_architecture(resolved.folder)[0]
    per_number = _BYTES[compute_type(target.dtype)]
    per_weight = 1 if has_int8_weights(target.dtype) else per_number
    attention, mlp = half_bytes(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        windows=[layer.window for layer in shape.layers],
        context=record.context_tokens,
        bytes_per_weight=per_weight,
        bytes_per_cached=per_number,
    )
    points = sorted(record.curve, key=lambda point: point.num_nodes)
    return StepTimeModel(
        tuple(point.num_nodes for point in points),
        tuple(point.median_s for point in points),
        attention,
        mlp,
        float(shape.hidden_size * shape.vocab_size * per_weight),
    )


def _source(record: CalibrationRecord) -> StepTimeSource:
    assert record.run_id is not None
    return StepTimeSource(
        run_id=record.run_id,
        hardware=record.hardware,
        context_tokens=record.context_tokens,
        curve=tuple((point.num_nodes, point.median_s) for point in record.curve),
    )

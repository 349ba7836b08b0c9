"""The flow `calibrate`: step time over nodes per forward, and what the layers of a target do."""

from __future__ import annotations

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from db.schemas import CalibrationRecord
from flows import artifacts, drivers
from flows.measurements import curve_table, layer_table
from flows.runs import is_worth_retrying, run_name
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.settings import Settings
from tasks.calibration import calibration_config


@flow(name="calibrate", flow_run_name=lambda: run_name("domain", "target"))
def calibrate(
    domain: str = "translation",
    target: str | None = None,
    nodes: list[int] | None = None,
    context: int | None = None,
    repeats: int | None = None,
    num_prompts: int | None = None,
    suite: str | None = None,
    dtype: str | None = None,
) -> State[str]:
    """Measure a target with the prompts of a domain; see CalibrationConfig.

    A parameter that is not given takes its default, the target that of the domain. It always
    measures anew. The state carries the id of the stored run.
    """
    given = dict(locals())  # the parameters, as nothing else has been assigned yet
    record = measure(calibration_config(given.pop("domain"), given))
    title = f"{record.target} on {record.hardware}"
    key = f"calibrate-{domain}"
    artifacts.publish_table(curve_table(record), artifacts.artifact_key(key, "step-time"))
    artifacts.publish_table(layer_table(record), artifacts.artifact_key(key, "layers"))
    return Completed(message=f"measured {title}", data=record.run_id)


@task(
    name="measure",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_worth_retrying,
)
def measure(config: CalibrationConfig) -> CalibrationRecord:
    """Measure in a worker and store the record."""
    bar = artifacts.ProgressBar(f"calibrate-{config.domain}")
    record = drivers.calibrate(
        config,
        Settings(),
        log=get_run_logger().info,
        progress=bar,
        flow_run_id=str(flow_run.id),
    )
    bar.finish("measured")
    return record

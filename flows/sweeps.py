"""What the flows over several searches share: check, run, show."""

from __future__ import annotations

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import artifacts, drivers
from flows.runs import is_worth_retrying
from specdec_core.config.search import CompareConfig, SensitivityConfig
from specdec_core.config.settings import Settings
from tasks.sweep import plan_sweep
from tasks.sweep_report import SweepReport


def run_and_show(config: CompareConfig | SensitivityConfig, *, retries_failed: bool) -> State[str]:
    """Return the final state of a sweep, its report stored and left as artifacts."""
    check_searches(config)
    report = sweep(config, retries_failed=retries_failed)
    artifacts.publish_sweep(report)
    return Completed(message=report.headline, data=report.run_id)


@task(name="check-searches", cache_policy=NO_CACHE)
def check_searches(config: CompareConfig | SensitivityConfig) -> None:
    """Refuse everything that can be refused before a model is loaded."""
    planned = plan_sweep(config, Settings())
    names = ", ".join(name for name, _ in planned.plans)
    get_run_logger().info("searching %s in %s", names, config.search.domain)


@task(
    name="sweep",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_worth_retrying,
)
def sweep(
    config: CompareConfig | SensitivityConfig, *, retries_failed: bool = False
) -> SweepReport:
    """Do every search; a second try continues with what is stored."""
    bar = artifacts.ProgressBar(f"sweep-{config.search.domain}")
    report = drivers.sweep(
        config,
        Settings(),
        log=get_run_logger().info,
        progress=bar,
        flow_run_id=str(flow_run.id),
        retries_failed=retries_failed,
    )
    bar.finish(report.headline)
    return report

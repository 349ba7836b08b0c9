"""The flow `benchmark`: drafting methods by domains on one target, at batch 1."""

from __future__ import annotations

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import artifacts, drivers
from flows.benchmark_tables import headline
from flows.runs import is_worth_retrying, run_name
from specdec_core.config.benchmark import BenchmarkConfig, Preset
from specdec_core.config.evaluation import Prefill
from specdec_core.config.presets import benchmark_config
from specdec_core.config.settings import Settings
from tasks.benchmark_report import BenchmarkReport


@flow(name="benchmark", flow_run_name=lambda: run_name("target", "session"))
def benchmark(
    target: str | None = None,
    methods: list[str] | None = None,
    domains: list[str] | None = None,
    num_items: int | None = None,
    max_new_tokens: int | None = None,
    repeats: int | None = None,
    sampling: str | None = None,
    skip: str | None = None,
    prefill: Prefill | None = None,
    suite: str | None = None,
    dtype: str | None = None,
    session: str | None = None,
    baseline: str | None = None,
    verify: bool | None = None,
    preset: Preset | None = None,
    min_effect: float | None = None,
) -> State[str]:
    """Measure every method in every domain; see BenchmarkConfig.

    A parameter that is not given takes the default of the preset, if one is named, else its own.
    What was measured under the same session name is not measured again. The state carries the id
    of the stored run.
    """
    config = benchmark_config(dict(locals()))
    report = measure_cells(config, "benchmark")
    artifacts.publish_benchmark(report, "benchmark")
    return end_state(report)


@task(
    name="measure-cells",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_worth_retrying,
)
def measure_cells(config: BenchmarkConfig, kind: str) -> BenchmarkReport:
    """Measure in workers; a second try continues with what is stored."""
    bar = artifacts.ProgressBar(kind)
    report = drivers.benchmark(
        config,
        Settings(),
        log=get_run_logger().info,
        progress=bar,
        flow_run_id=str(flow_run.id),
        kind=kind,
    )
    bar.finish(headline(report))
    return report


def end_state(report: BenchmarkReport) -> State[str]:
    """Return the final state: completed, under a name of its own where something is wrong."""
    name = "Regression" if report.regressions else None if report.is_good else "NotProven"
    state: State[str] = Completed(name=name, message=headline(report), data=report.run_id)
    return state

"""The flow `nightly-benchmark`: a small fixed sweep compared with a stored baseline."""

from __future__ import annotations

from datetime import UTC, datetime

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from flows import artifacts
from flows.benchmark import end_state, measure_cells
from flows.runs import run_name
from specdec_core.config.evaluation import Prefill
from specdec_core.config.presets import NIGHTLY, benchmark_config

KIND = "nightly-benchmark"


@flow(name=KIND, flow_run_name=lambda: run_name("target", "session"))
def nightly_benchmark(
    target: str | None = None,
    methods: list[str] | None = None,
    domains: list[str] | None = None,
    num_items: int | None = None,
    max_new_tokens: int | None = None,
    repeats: int | None = None,
    sampling: str | None = None,
    dtype: str | None = None,
    prefill: Prefill | None = None,
    session: str | None = None,
    baseline: str | None = None,
    min_effect: float | None = None,
) -> State[str]:
    """Measure tonight's sweep and compare it with the baseline; see BenchmarkConfig.

    The first run becomes the baseline. A regression leaves a report that looks like one, an
    event `specdec.quality.regression` for automations, and the state name Regression.
    """
    given = dict(locals())  # the parameters, as nothing else has been assigned yet
    config = benchmark_config(given, {**NIGHTLY, "session": tonight()})
    report = measure_cells(config, KIND)
    artifacts.publish_benchmark(report, KIND)
    artifacts.emit_regressions(report)
    return end_state(report)


def tonight() -> str:
    """Name of this measurement by its scheduled time: a retry resumes it, the next one does not."""
    start: datetime = flow_run.scheduled_start_time or datetime.now(UTC)
    return f"nightly-{start:%Y-%m-%dT%H:%M}"

"""The flow `tss-search`: what of a target may be skipped in one domain."""

from __future__ import annotations

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows import artifacts
from flows.drivers import search as run_search_here
from flows.report import links
from flows.runs import is_worth_retrying, run_name
from flows.services.state import running_state
from specdec_core.config.domains import search_config
from specdec_core.config.evaluation import Prefill
from specdec_core.config.search import SearchConfig, StrategyName, UnitChoice
from specdec_core.config.settings import Settings
from tasks.plan import plan_search
from tasks.report import SearchReport


@flow(name="tss-search", flow_run_name=lambda: run_name("domain", "target", "tolerance"))
def tss_search(
    domain: str = "translation",
    target: str | None = None,
    drafter: str | None = None,
    strategy: StrategyName | None = None,
    units: UnitChoice | None = None,
    prefill: Prefill | None = None,
    tolerance: float | None = None,
    tolerance_acceptance: float | None = None,
    tolerance_metric: float | None = None,
    beam: int | None = None,
    depth: int | None = None,
    num_selection: int | None = None,
    num_heldout: int | None = None,
    candidates: str | None = None,
    protected: str | None = None,
    protect_ends: bool | None = None,
    max_new_tokens: int | None = None,
    batch_size: int | None = None,
    bound: bool | None = None,
    suite: str | None = None,
    seed: int | None = None,
    control: str | None = None,
    num_control: int | None = None,
    activate: bool | None = None,
    dtype: str | None = None,
    num_draws: int | None = None,
    sparsity_weight: float | None = None,
    retry_failed: bool | None = None,
) -> State[str]:
    """Search, validate on held-out items and publish a skip profile; see SearchConfig.

    A parameter that is not given takes the default of the domain. With `retry_failed`,
    configurations that an earlier run left out because they failed are tried again. The state
    carries the id of the stored run; its message is the result in one sentence.
    """
    given = dict(locals())  # the parameters, as nothing else has been assigned yet
    del given["retry_failed"]
    config = check_parameters(given.pop("domain"), given)
    report = search(config, retries_failed=bool(retry_failed))
    leave_artifacts(report)
    return Completed(message=report.headline, data=report.run_id)


@task(name="check-parameters", cache_policy=NO_CACHE)
def check_parameters(
    domain: str, given: dict[str, str | int | float | bool | None]
) -> SearchConfig:
    """Return the resolved search; everything that can be refused is, before a model is loaded."""
    config = search_config(domain, given)
    plan = plan_search(config, Settings())
    get_run_logger().info(
        "searching %d units of %s in %s", len(plan.units), config.target, config.domain
    )
    return config


@task(
    name="search",
    cache_policy=NO_CACHE,
    retries=1,
    retry_delay_seconds=2,
    retry_condition_fn=is_worth_retrying,
)
def search(config: SearchConfig, *, retries_failed: bool = False) -> SearchReport:
    """Run the search; a second try continues with what is stored."""
    bar = artifacts.ProgressBar(f"tss-search-{config.domain}")
    report = run_search_here(
        config,
        Settings(),
        log=get_run_logger().info,
        progress=bar,
        flow_run_id=str(flow_run.id),
        retries_failed=retries_failed,
    )
    bar.finish(report.headline)
    return report


@task(name="leave-artifacts", cache_policy=NO_CACHE)
def leave_artifacts(report: SearchReport) -> None:
    """Show the result on the page of the run and tell automations."""
    found = links(report, running_state(Settings().home_dir), str(flow_run.id))
    artifacts.publish_search(report, found)
    artifacts.emit_search(report)

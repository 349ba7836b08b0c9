"""The flow `tss-compare`: every search strategy side by side in one domain."""

from __future__ import annotations

from prefect import flow
from prefect.client.schemas.objects import State

from flows.runs import run_name
from flows.sweeps import run_and_show
from specdec_core.config.domains import compare_config
from specdec_core.config.evaluation import Prefill
from specdec_core.config.search import StrategyName, UnitChoice


@flow(name="tss-compare", flow_run_name=lambda: run_name("domain", "target"))
def tss_compare(
    domain: str = "translation",
    strategies: list[StrategyName] | None = None,
    target: str | None = None,
    drafter: str | None = None,
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
    dtype: str | None = None,
    num_draws: int | None = None,
    sparsity_weight: float | None = None,
    retry_failed: bool | None = None,
) -> State[str]:
    """Search with every strategy under one evaluator and compare the answers; see CompareConfig.

    A parameter that is not given takes the default of the domain. Nothing is published. The state
    carries the id of the stored run; its message is the result in one sentence.
    """
    given = dict(locals())  # the parameters, as nothing else has been assigned yet
    del given["retry_failed"]
    config = compare_config(given.pop("domain"), given)
    return run_and_show(config, retries_failed=bool(retry_failed))

"""A search with everything resolved and checked, before any model is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from db.schemas import MetricName
from specdec_core.config.domains import check_domain
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.search import BOUNDED, SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.data.split import Split, split
from specdec_core.errors import ConfigError
from specdec_core.search.bounds import ItemLimits
from specdec_core.search.space import candidates, evaluation_bound, space_hash
from specdec_core.search.study import study_name
from specdec_core.skip import SkipConfig, SkipUnit
from tasks.agreement import metric_name_of
from tasks.control import ControlPlan, plan_control
from tasks.prepare import (
    Preparer,
    Workload,
    drafter_scope,
    prepare,
    selection_batch_size,
    selection_mode,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A search with everything resolved and checked."""

    config: SearchConfig
    workload: Workload
    split: Split
    units: tuple[SkipUnit, ...]
    control: ControlPlan | None = None

    @property
    def metric_name(self) -> MetricName:
        """What stands for quality: the items' metric, or agreement with the dense output."""
        return metric_name_of(self.workload.suite)

    @property
    def max_configurations(self) -> int:
        """Most configurations the search can evaluate, dense not counted."""
        if self.config.strategy == "random":
            return self.config.num_draws * self.config.depth
        return evaluation_bound(len(self.units), self.config.beam, self.config.depth)

    def request(self, skip: SkipConfig) -> EvaluationRequest:
        """Return the selection request of one configuration."""
        drafter = parse_drafter(self.config.drafter)
        return self.workload.request(
            skip=str(skip),
            prefill=self.config.prefill,
            drafter=drafter,
            item_ids=self.split.selection_ids,
            max_new_tokens=self.config.max_new_tokens,
            batch_size=selection_batch_size(drafter, self.config.batch_size),
            mode=selection_mode(drafter),
        )

    def parts(self, skip: SkipConfig) -> tuple[EvaluationRequest, ...]:
        """Return the selection request of one configuration cut between its batches.

        Batches are decoded one after the other and share nothing, so that the parts together give
        exactly what the whole gives.
        """
        whole = self.request(skip)
        ids, size = whole.item_ids, whole.batch_size
        return tuple(
            whole.model_copy(update={"item_ids": ids[start : start + size]})
            for start in range(0, len(ids), size)
        )

    @property
    def item_limits(self) -> ItemLimits:
        """What no selection item can exceed."""
        return ItemLimits(self.config.max_new_tokens, parse_drafter(self.config.drafter).max_path)

    @property
    def is_bounded(self) -> bool:
        """Whether sets are evaluated in parts and dropped where they change nothing."""
        return self.config.bound and not self.bound_notes

    @property
    def bound_notes(self) -> tuple[str, ...]:
        """Why this search drops nothing although it was asked to."""
        if not self.config.bound:
            return ()
        drafter = parse_drafter(self.config.drafter)
        if self.config.strategy not in BOUNDED:
            return (
                f"strategy {self.config.strategy} evaluates every set whole: bound has no use, "
                f"leave it out, or choose one of {', '.join(sorted(BOUNDED))}",
            )
        if drafter_scope(drafter) == "run":
            return (
                f"drafter {drafter.method} remembers items across batches, so that sets are "
                "evaluated whole: bound has no use, leave it out",
            )
        return ()

    def loss_request(self, skip: SkipConfig) -> EvaluationRequest:
        """Return the request for the loss of one configuration on the selection items.

        Neither drafter, batch nor output length takes part, so that they do not split the memo.
        """
        return self.workload.request(
            skip=str(skip),
            prefill=self.config.prefill,
            drafter="none",
            item_ids=self.split.selection_ids,
            max_new_tokens=1,
            mode="loss",
        )

    @property
    def study(self) -> str:
        """Name of the Optuna study: one per search configuration and evaluation conditions."""
        # Neither what becomes of the answer nor a way to it that cannot change it makes it another
        # search.
        afterwards = {"activate", "bound", "control", "num_control"}
        config = self.config.model_dump(mode="json", exclude=afterwards)
        parts = [config, self.request(SkipConfig()).key]
        if self.metric_name != "metric":
            parts.append(self.metric_name)
        text = json.dumps([*parts, space_hash(self.units)], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        target = self.workload.target.reference
        return study_name(self.config.domain, target, self.config.drafter, digest)


def check_bound(*plans: Plan) -> None:
    """Refuse searches that were asked to drop sets where none of them can.

    Raises:
        ConfigError: says why the first one cannot.
    """
    if plans[0].config.bound and not any(plan.is_bounded for plan in plans):
        raise ConfigError(plans[0].bound_notes[0])


def plan_search(
    config: SearchConfig, settings: Settings, prepare_workload: Preparer = prepare
) -> Plan:
    """Resolve and check a search before any model is loaded.

    Raises:
        ConfigError: if domain, target, suite, split, units, type or negative control cannot be
            used.
    """
    check_domain(config.domain, config.suite)
    workload = prepare_workload(config.target, config.domain, config.suite, config.dtype, settings)
    drawn = split(workload.suite, config.num_selection, config.num_heldout, seed=config.seed)
    units = candidates(
        config.units,
        workload.target.num_layers,
        config.protect_ends,
        only=config.candidates,
        protected=config.protected,
    )
    control = plan_control(config, settings, prepare_workload)
    return Plan(config, workload, drawn, units, control)

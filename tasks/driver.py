"""One search in progress: asks, tells, and compares the answer on held-out items."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from specdec_core.records import EvaluationSummary
from specdec_core.search.advice import best_sparse
from specdec_core.search.study import StudyLedger
from specdec_core.search.tss import Failure, Ranked, Score, SearchOutcome, TssSearch
from specdec_core.skip import SkipConfig
from tasks.dispatch import Answer, Dispatcher
from tasks.heldout import HeldoutPlan, plan_heldout
from tasks.jobs import JobFailure
from tasks.mirrored import ChildRun
from tasks.plan import Plan
from tasks.report import OnProgress, Progress, SearchCosts
from tasks.runtime import LogLine
from tasks.sinks import Tracker

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SearchDriver:
    """One search in progress."""

    plan: Plan
    dispatcher: Dispatcher
    ledger: StudyLedger
    tracker: Tracker
    run_id: str
    log: LogLine
    progress: OnProgress
    keys: dict[str, str] = field(default_factory=dict)
    worker_s: float = 0.0
    _dense: EvaluationSummary | None = None
    _unsent: list[tuple[Answer, int]] = field(default_factory=list)

    def search(self) -> SearchOutcome:
        """Answer everything the search asks for."""
        config = self.plan.config
        search = TssSearch(
            self.plan.units,
            beam=config.beam,
            depth=config.depth,
            epsilon_acceptance=config.epsilon_acceptance,
            epsilon_metric=config.epsilon_metric,
        )
        asked: dict[str, tuple[SkipConfig, int]] = {}
        num_told = 0
        while not search.is_finished:
            for skip in search.pending():
                if str(skip) not in self.keys:
                    level = search.level if skip.units else 0
                    asked[self._ask(skip, level)] = skip, level
            for answer in self.dispatcher.wait():
                skip, level = asked[answer.request.key]
                self._tell(search, skip, level, answer)
                num_told += 1
                done = Progress(
                    stage="level", done=num_told, total=len(asked), text=f"level {level}"
                )
                self.progress(done)
        return search.outcome()

    def _ask(self, skip: SkipConfig, level: int) -> str:
        request = self.plan.request(skip)
        self.keys[str(skip)] = request.key
        # Workers first: they decode while the study is written.
        self.dispatcher.submit([("selection" if skip.units else "dense", request)], level)
        self.ledger.start(skip, request.key, level)
        return request.key

    def _tell(self, search: TssSearch, skip: SkipConfig, level: int, answer: Answer) -> None:
        key, result = answer.request.key, answer.result
        self.worker_s += answer.seconds
        if isinstance(result, JobFailure):
            self.log(f"{skip.label}: failed and left out ({result.error_type}: {result.message})")
            told: Score | Failure = Failure(f"{result.error_type}: {result.message}")
        else:
            told = Score(result.acceptance_length, result.metric)
            source = f"{answer.seconds:.1f} s" if answer.source == "worker" else "stored"
            metric = "" if result.metric is None else f", metric {result.metric:.4f}"
            self.log(
                f"{skip.label} [{key[:8]}]: acceptance {result.acceptance_length:.3f}{metric} "
                f"({source})"
            )
        self.ledger.finish(key, told, answer.seconds or None)
        self._mirror(answer, level)
        search.tell(skip, told)

    def _mirror(self, answer: Answer, level: int) -> None:
        """Send an answer to the tracker, with its gains once dense is known."""
        if level == 0 and not isinstance(answer.result, JobFailure):
            self._dense = answer.result
        self._unsent.append((answer, level))
        if self._dense is None:
            return
        for each, each_level in self._unsent:
            summary = None if isinstance(each.result, JobFailure) else each.result
            child = ChildRun.of(
                each.request, summary, level=each_level, seconds=each.seconds, dense=self._dense
            )
            self.tracker.child(self.run_id, child)
        self._unsent.clear()

    def validate(self, outcome: SearchOutcome) -> HeldoutPlan | None:
        """Evaluate dense against the answer on held-out items, or the best sparse one instead."""
        compared = compared_member(outcome)
        if compared is None:
            return None
        config = self.plan.config
        plan = plan_heldout(
            self.plan.workload,
            str(compared.skip),
            config.drafter,
            self.plan.split.heldout_ids,
            config.max_new_tokens,
        )
        self.log(f"comparing {compared.skip} with dense on held-out items")
        ordered = plan.in_order
        self.dispatcher.submit([(f"heldout-{arm}", request) for arm, request in ordered])
        num_done, total = 0, len({request.key for _, request in ordered})
        while not self.dispatcher.is_idle:
            for answer in self.dispatcher.wait():
                self.worker_s += answer.seconds
                num_done += 1
                text = answer.request.skip or "dense"
                self.progress(Progress(stage="held-out", done=num_done, total=total, text=text))
        return plan

    def costs(self, wall_s: float) -> SearchCosts:
        """Return what this run did itself and what it found."""
        return SearchCosts(
            num_evaluated=self.dispatcher.num_evaluated,
            num_memoised=self.dispatcher.num_memoised,
            num_failed=self.dispatcher.num_failed,
            worker_s=self.worker_s,
            wall_s=wall_s,
        )


def compared_member(outcome: SearchOutcome) -> Ranked | None:
    """Return the answer, or where that is dense the best sparse one, so that its cost is seen."""
    return outcome.answer if outcome.answer.skip.units else best_sparse(outcome)

"""One search in progress: asks, tells, and compares the answer on held-out items."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import EvaluationSummary
from specdec_core.search.advice import best_sparse
from specdec_core.search.outcome import Failure, Loss, Ranked, Result, Score, SearchOutcome
from specdec_core.search.step_model import StepTimeModel
from specdec_core.search.strategies import make_strategy
from specdec_core.search.strategy import Strategy
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipConfig
from tasks.agreement import AgreementScores
from tasks.answers import Answer
from tasks.background_ledger import BackgroundLedger
from tasks.dispatch import Dispatcher
from tasks.heldout import HeldoutPlan, plan_heldout
from tasks.jobs import JobFailure
from tasks.mirrored import ChildRun
from tasks.parted import DropCosts, PartedSearch
from tasks.plan import Plan
from tasks.report import OnProgress, Progress, SearchCosts
from tasks.runtime import LogLine
from tasks.sinks import Tracker
from tasks.together import Asking, run_together
from tasks.whole import WholeSearch

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SearchDriver:
    """One search in progress."""

    plan: Plan
    dispatcher: Dispatcher
    ledger: BackgroundLedger
    tracker: Tracker
    run_id: str
    log: LogLine
    progress: OnProgress
    step_model: StepTimeModel | None = None
    """Measured before the search, where its strategy needs it."""
    mirrored: set[str] = field(default_factory=set)
    """Evaluations of this run that the tracker has been sent."""
    keys: dict[str, str] = field(default_factory=dict)
    loss_keys: dict[str, str] = field(default_factory=dict)
    part_keys: set[str] = field(default_factory=set)
    """Parts that were needed, where sets are evaluated in parts."""
    drop_costs: DropCosts = field(default_factory=DropCosts)
    worker_s: float = 0.0
    decoded_tokens: int = 0
    """On selection items, by workers."""
    _search: Strategy | None = None
    _dense: EvaluationSummary | None = None
    _unsent: list[tuple[Answer, int]] = field(default_factory=list)

    def search(self) -> SearchOutcome:
        """Answer everything the search asks for."""
        run_together([self.begin()], self.dispatcher)
        return self.outcome()

    def begin(self) -> Asking:
        """Begin the search; what it returns asks and is answered, then `outcome` says the rest."""
        search = make_strategy(
            self.plan.config,
            self.plan.units,
            num_layers=self.plan.workload.target.num_layers,
            step_model=self.step_model,
        )
        self._search = search
        if self.plan.control is not None:
            requests = self.plan.control.requests("")
            self.dispatcher.offer([("control-dense", request) for request in requests])
        for note in self.plan.bound_notes:
            logger.warning("%s", note)
        scores = AgreementScores(
            self.dispatcher.store, self.plan.metric_name, len(self.plan.split.selection_ids)
        )
        if not (isinstance(search, TssSearch) and self.plan.is_bounded):
            return WholeSearch(
                self.plan,
                self.dispatcher,
                self.ledger,
                scores,
                search,
                keys=self.keys,
                loss_keys=self.loss_keys,
                tell=self._tell,
                on_answer=self._count,
                progress=self.progress,
            )
        return PartedSearch(
            self.plan,
            self.dispatcher,
            self.ledger,
            self.log,
            scores,
            search,
            keys=self.keys,
            tell=self._tell,
            on_part=self._count,
            progress=self.progress,
            costs=self.drop_costs,
            needed=self.part_keys,
        )

    def outcome(self) -> SearchOutcome:
        """Return what the finished search found, once its study is written."""
        assert self._search is not None
        self.ledger.flush()
        return self._search.outcome()

    @property
    def needed_keys(self) -> frozenset[str]:
        """Every evaluation that the search needs; parts of them where sets are dropped."""
        return frozenset((*(self.part_keys or self.keys.values()), *self.loss_keys.values()))

    def _count(self, answer: Answer) -> None:
        """Note what a worker did for an answer."""
        self.worker_s += answer.seconds
        if answer.source == "worker" and not isinstance(answer.result, JobFailure):
            self.decoded_tokens += answer.result.num_tokens if answer.request.mode != "loss" else 0

    def _tell(self, skip: SkipConfig, level: int, answer: Answer) -> None:
        key, result = answer.request.key, answer.result
        source = f"{answer.seconds:.1f} s" if answer.source == "worker" else "stored"
        if isinstance(result, JobFailure):
            self.log(f"{skip.label}: failed and left out ({result.error_type}: {result.message})")
            told: Result = Failure(f"{result.error_type}: {result.message}")
        elif answer.request.mode == "loss":
            assert result.loss is not None
            told = Loss(result.loss)
            self.log(f"{skip.label} [{key[:8]}]: loss {result.loss:.4f} nats per token ({source})")
        else:
            told = score_of(result)
            name = self.plan.metric_name
            metric = "" if result.metric is None else f", {name} {result.metric:.4f}"
            self.log(
                f"{skip.label} [{key[:8]}]: acceptance {result.acceptance_length:.3f}{metric} "
                f"({source})"
            )
        if answer.request.mode == "loss":
            assert not isinstance(told, Score)
            self.ledger.add_loss(skip, key, level, told, answer.seconds or None)
        else:
            assert not isinstance(told, Loss)
            self.ledger.finish(key, told, answer.seconds or None)
            self._mirror(answer, level)
        assert self._search is not None
        self._search.tell(skip, told)

    def _mirror(self, answer: Answer, level: int) -> None:
        """Send an answer to the tracker, once, with its gains as soon as dense is known."""
        if level == 0 and not isinstance(answer.result, JobFailure):
            self._dense = answer.result
        self._unsent.append((answer, level))
        if self._dense is None:
            return
        for each, each_level in self._unsent:
            if each.request.key in self.mirrored:
                continue
            self.mirrored.add(each.request.key)
            summary = None if isinstance(each.result, JobFailure) else each.result
            child = ChildRun.of(
                each.request,
                summary,
                level=each_level,
                seconds=each.seconds,
                dense=self._dense,
                metric_name=self.plan.metric_name,
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
            prefill=config.prefill,
        )
        self.log(f"comparing {compared.skip} with dense on held-out items")
        self.worker_s += measure_heldout(self.dispatcher, plan.in_order, self.progress)
        return plan

    def check_control(self, outcome: SearchOutcome) -> None:
        """Answer the items of the second domain, if there is one, with what is compared."""
        compared, control = compared_member(outcome), self.plan.control
        if compared is None or control is None:
            return
        self.log(f"looking at {compared.skip} in the domain {control.workload.suite.domain}")
        for request in control.requests(str(compared.skip)):
            self.dispatcher.submit([("control-sparse", request)])
        num_done, total = 0, len(control.requests(""))
        while not self.dispatcher.is_idle:
            for answer in self.dispatcher.wait():
                num_done += 1
                self.worker_s += answer.seconds
                text = control.workload.suite.domain
                self.progress(Progress(stage="control", done=num_done, total=total, text=text))

    def costs(self, wall_s: float) -> SearchCosts:
        """Return what this run did itself and what it found."""
        return SearchCosts(
            num_evaluated=self.dispatcher.answers.num_evaluated,
            num_memoised=self.dispatcher.answers.num_memoised,
            num_failed=self.dispatcher.answers.num_failed,
            worker_s=self.worker_s + self.dispatcher.patient_s,
            wall_s=wall_s,
            utilisation=self.dispatcher.utilisation(),
            decoded_tokens=self.decoded_tokens,
            num_dropped=self.drop_costs.num_dropped,
            saved_tokens=self.drop_costs.items_left_out * self.plan.config.max_new_tokens,
        )


def score_of(summary: EvaluationSummary) -> Score:
    """Return what a strategy is told of one evaluation."""
    nodes = 1.0 + summary.num_drafted / summary.num_steps if summary.num_steps else 1.0
    return Score(summary.acceptance_length, summary.metric, nodes)


def measure_heldout(
    dispatcher: Dispatcher,
    ordered: Sequence[tuple[str, EvaluationRequest]],
    progress: OnProgress,
) -> float:
    """Do held-out evaluations in the order given; return seconds in workers."""
    dispatcher.submit([(f"heldout-{arm}", request) for arm, request in ordered])
    num_done, total, worker_s = 0, len({request.key for _, request in ordered}), 0.0
    while not dispatcher.is_idle:
        for answer in dispatcher.wait():
            worker_s += answer.seconds
            num_done += 1
            text = answer.request.skip or "dense"
            progress(Progress(stage="held-out", done=num_done, total=total, text=text))
    return worker_s


def compared_member(outcome: SearchOutcome) -> Ranked | None:
    """Return the answer, or where that is dense the best sparse one, so that its cost is seen."""
    return outcome.answer if outcome.answer.skip.units else best_sparse(outcome)

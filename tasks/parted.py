"""A search whose sets are evaluated in parts and dropped once they change nothing any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import EvaluationSummary
from specdec_core.search.bounds import PartialCounts, score_bounds
from specdec_core.search.outcome import Score
from specdec_core.search.part_schedule import PartSchedule
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipConfig
from tasks.agreement import AgreementScores
from tasks.answers import Answer
from tasks.background_ledger import BackgroundLedger
from tasks.dispatch import Dispatcher
from tasks.jobs import JobFailure
from tasks.plan import Plan
from tasks.report import OnProgress, Progress
from tasks.runtime import LogLine
from tasks.whole import Tell


@dataclass(slots=True)
class DropCosts:
    """What dropping sets saved in one search."""

    num_dropped: int = 0
    items_left_out: int = 0
    """Items of dropped sets that were not decoded."""


@dataclass(slots=True)
class _Set:
    """One skip set that is evaluated in parts."""

    whole: EvaluationRequest
    parts: tuple[EvaluationRequest, ...]
    level: int
    counts: PartialCounts = field(default_factory=PartialCounts)
    history: list[tuple[int, Score]] = field(default_factory=list)
    seconds: float = 0.0
    is_next_missing: bool = False
    """Whether the store is known not to have the next part."""


@dataclass(slots=True)
class PartedSearch:
    """Asks for what a search needs part by part; see `together.Asking`.

    A whole evaluation that is stored answers first, then stored parts, one per set at a time;
    then workers that no other search needs do one part each, as `PartSchedule` says. So a search
    that ran to its end and is repeated asks for nothing new. A part that fails fails its set. When
    the last part of a set is in, the whole is stored under its own key, as if it had been evaluated
    at once.
    """

    plan: Plan
    dispatcher: Dispatcher
    ledger: BackgroundLedger
    log: LogLine
    scores: AgreementScores
    search: TssSearch
    keys: dict[str, str]
    """Receives the key of every set that is finished, or of the part that failed."""
    tell: Tell
    on_part: Callable[[Answer], None]
    """Told of every part."""
    progress: OnProgress
    costs: DropCosts = field(default_factory=DropCosts)
    needed: set[str] = field(default_factory=set)
    """Keys of the parts of all sets, as far as they were needed."""
    _sets: dict[SkipConfig, _Set] = field(default_factory=dict)
    _asked: dict[str, tuple[SkipConfig, int | None]] = field(default_factory=dict)
    """Set and part number by key; no number for a whole."""
    _due: set[str] = field(default_factory=set)
    _last_parts: set[str] = field(default_factory=set)
    """Keys of the parts with which a set has ended."""

    _schedule: PartSchedule = field(init=False)

    def __post_init__(self) -> None:
        self._schedule = PartSchedule(len(self.plan.parts(SkipConfig())))

    @property
    def is_finished(self) -> bool:
        """Whether it needs nothing more, and no part of a set that was dropped is on its way."""
        return self.search.is_finished and not self._schedule.num_under_way

    def ask(self) -> None:
        """Ask for what is stored, or else for as many parts as there are free workers."""
        pending = self.search.pending()
        for skip in pending:
            if skip not in self._sets:
                self._recall_whole(skip, self.search.level_of(skip))
        if not self.dispatcher.has_answers:
            for skip in pending:
                self._recall_part(skip)
        if self.dispatcher.has_answers:
            return
        while (next_set := self._schedule.next(pending)) is not None:
            if not self.dispatcher.has_room:
                break
            part = self._begin(next_set)
            # Workers first: they decode while the study is written.
            self.dispatcher.submit([("part", part)], self._sets[next_set].level)
            self._start_trial(next_set)

    def awaits(self, key: str) -> bool:
        """Whether it has asked for a whole or a part and not been given the answer."""
        return key in self._due

    def _recall_whole(self, skip: SkipConfig, level: int) -> None:
        whole = self.plan.request(skip)
        self._sets[skip] = _Set(whole, self.plan.parts(skip), level)
        if self.dispatcher.recall(_role(skip), whole, level):
            self._asked[whole.key] = skip, None
            self._due.add(whole.key)
            self.needed.update(part.key for part in self._sets[skip].parts)
            self._start_trial(skip)

    def _recall_part(self, skip: SkipConfig) -> None:
        known = self._sets[skip]
        if known.is_next_missing or not self._schedule.has_more(skip):
            return
        part = known.parts[self._schedule.num_begun(skip)]
        if self.dispatcher.recall("part", part, known.level):
            self._begin(skip)
            self._start_trial(skip)
        else:
            known.is_next_missing = True

    def _begin(self, skip: SkipConfig) -> EvaluationRequest:
        _, number = self._schedule.begin(skip)
        part = self._sets[skip].parts[number]
        self._sets[skip].is_next_missing = False
        self._asked[part.key] = skip, number
        self._due.add(part.key)
        self.needed.add(part.key)
        return part

    def _start_trial(self, skip: SkipConfig) -> None:
        known = self._sets[skip]
        self.ledger.start(skip, known.whole.key, known.level)

    def take(self, answers: Sequence[Answer]) -> None:
        """Tell the search what the answers say of its sets."""
        self._due -= {answer.request.key for answer in answers}
        for answer in answers:  # a worker is free again, whatever the answer has to wait for
            skip, number = self._asked[answer.request.key]
            if number is not None and self._schedule.end((skip, number)):
                self._last_parts.add(answer.request.key)
        for answer in self.scores.ready(answers):
            skip, number = self._asked[answer.request.key]
            if number is None:
                self.keys[str(skip)] = answer.request.key
                self.tell(skip, self._sets[skip].level, answer)
            else:
                self._take_part(skip, answer)
            self._note_dropped()
            num_done = len(self.keys) + self.costs.num_dropped
            text = f"level {self._sets[skip].level}"
            self.progress(Progress(stage="level", done=num_done, total=len(self._sets), text=text))

    def _take_part(self, skip: SkipConfig, answer: Answer) -> None:
        known, result = self._sets[skip], answer.result
        self.on_part(answer)
        known.seconds += answer.seconds
        if not isinstance(result, JobFailure):
            known.counts += partial_counts(result)
            known.history.append((known.counts.num_items, known.counts.score))
        if self.search.is_finished or skip not in self.search.pending():
            return  # it was dropped, or a part failed, while this one was on its way
        if isinstance(result, JobFailure):
            self.keys[str(skip)] = answer.request.key
            self.tell(skip, known.level, Answer(known.whole, result, answer.source))
        elif answer.request.key in self._last_parts:
            parts = [part.key for part in known.parts]
            summary = self.dispatcher.keep(_role(skip), known.whole, parts, known.level)
            self.keys[str(skip)] = known.whole.key
            summary = self.scores.score(known.whole.key, summary)
            whole = Answer(known.whole, summary, "store", known.seconds)
            if known.seconds:
                whole = replace(whole, source="worker")
            self.tell(skip, known.level, whole)
        else:
            bounds = score_bounds(
                known.counts,
                len(known.whole.item_ids),
                self.plan.item_limits,
                metric_name=self.plan.metric_name,
            )
            self.search.narrow(skip, bounds)

    def _note_dropped(self) -> None:
        """Log and count sets that were dropped since the last look."""
        for skip, bounds in list(self.search.dropped.items())[self.costs.num_dropped :]:
            known = self._sets[skip]
            self.costs.num_dropped += 1
            self.costs.items_left_out += bounds.num_items - bounds.num_done
            self.log(f"{skip.label}: dropped {bounds.text}")
            self.ledger.prune(known.whole.key, bounds, known.history)


def partial_counts(summary: EvaluationSummary) -> PartialCounts:
    """Return the sums that bounds are taken from; an output's first token comes from no step."""
    score_sum = (summary.metric or 0.0) * summary.num_scored
    return PartialCounts(
        num_items=summary.num_samples,
        num_committed=summary.num_tokens - summary.num_samples,
        num_steps=summary.num_steps,
        num_scored=summary.num_scored,
        score_sum=score_sum,
    )


def _role(skip: SkipConfig) -> str:
    return "selection" if skip.units else "dense"

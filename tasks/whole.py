"""A search whose skip sets are evaluated whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdec_core.search.strategy import EvaluationKind, Strategy
from specdec_core.skip import SkipConfig
from tasks.agreement import AgreementScores
from tasks.answers import Answer
from tasks.background_ledger import BackgroundLedger
from tasks.dispatch import Dispatcher
from tasks.plan import Plan
from tasks.report import OnProgress, Progress

Tell = Callable[[SkipConfig, int, Answer], None]
"""Takes the answer about a whole set, and the level it belongs to."""


@dataclass(slots=True)
class WholeSearch:
    """Asks for every pending set of a strategy at once; see `together.Asking`.

    The only set that a strategy waits for goes before what others have asked for: it holds up all
    of that search.
    """

    plan: Plan
    dispatcher: Dispatcher
    ledger: BackgroundLedger
    scores: AgreementScores
    search: Strategy
    keys: dict[str, str]
    """Receives the key of the decoding of every set."""
    loss_keys: dict[str, str]
    """Receives the key of the loss of every set."""
    tell: Tell
    on_answer: Callable[[Answer], None]
    """Told of every answer."""
    progress: OnProgress
    _asked: dict[str, tuple[SkipConfig, int]] = field(default_factory=dict)
    _due: set[str] = field(default_factory=set)
    _num_told: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether it needs nothing more."""
        return self.search.is_finished

    def ask(self) -> None:
        """Ask for what is pending and has not been asked for."""
        pending = self.search.pending()
        for skip in pending:
            kind = self.search.kind_of(skip)
            if str(skip) not in self._keys_of(kind):
                self._ask(skip, kind, is_next=len(pending) == 1)

    def awaits(self, key: str) -> bool:
        """Whether it has asked for an evaluation and not been given the answer."""
        return key in self._due

    def take(self, answers: Sequence[Answer]) -> None:
        """Tell the strategy what can be told."""
        self._due -= {answer.request.key for answer in answers}
        for answer in self.scores.ready(answers):
            skip, level = self._asked[answer.request.key]
            self.on_answer(answer)
            self.tell(skip, level, answer)
            self._num_told += 1
            done, total = self._num_told, len(self._asked)
            self.progress(Progress(stage="level", done=done, total=total, text=f"level {level}"))

    def _keys_of(self, kind: EvaluationKind) -> dict[str, str]:
        return self.loss_keys if kind == "loss" else self.keys

    def _ask(self, skip: SkipConfig, kind: EvaluationKind, *, is_next: bool) -> None:
        is_loss, level = kind == "loss", self.search.level_of(skip)
        request = self.plan.loss_request(skip) if is_loss else self.plan.request(skip)
        self._keys_of(kind)[str(skip)] = request.key
        self._asked[request.key] = skip, level
        self._due.add(request.key)
        role = "loss" if is_loss else "selection" if skip.units else "dense"
        # Workers first: they decode while the study is written.
        self.dispatcher.submit([(role, request)], level, is_next=is_next)
        if not is_loss:
            self.ledger.start(skip, request.key, level)

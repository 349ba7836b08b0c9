"""The interface of every search strategy: a pure state machine that is asked and told."""

from __future__ import annotations

from typing import Literal, Protocol

from specdec_core.search.outcome import Result, SearchOutcome
from specdec_core.skip import SkipConfig

EvaluationKind = Literal["score", "loss"]
"""A score is decoded with the drafter; a loss is one forward over references, far cheaper."""


class Strategy(Protocol):
    """Asks for results of skip sets until its outcome is certain.

    The caller asks `pending` what is certainly needed, obtains it in any order and anywhere, and
    tells the results. A strategy knows no models, clocks or stores: the same answers always lead
    to the same outcome.
    """

    @property
    def is_finished(self) -> bool:
        """True once the outcome is certain; nothing is pending then."""
        ...

    @property
    def level(self) -> int:
        """Number of the level in progress, 1-based; the last one when finished."""
        ...

    def pending(self) -> tuple[SkipConfig, ...]:
        """Return what is certainly needed and not yet told, the dense target first."""
        ...

    def kind_of(self, skip: SkipConfig) -> EvaluationKind:
        """Return what is asked about a pending set."""
        ...

    def level_of(self, skip: SkipConfig) -> int:
        """Return the level a pending set belongs to; 0 for dense."""
        ...

    def tell(self, skip: SkipConfig, result: Result) -> None:
        """Record the result of one pending set; the order of telling is irrelevant.

        Raises:
            ConfigError: if it was not asked for, or not in this way.
            EvaluationFailedError: if the dense target itself failed.
        """
        ...

    def outcome(self) -> SearchOutcome:
        """Return what the finished search found.

        Raises:
            ConfigError: if results are still pending.
        """
        ...

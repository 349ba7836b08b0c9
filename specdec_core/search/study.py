"""The Optuna ledger of a search: one trial per configuration, written by one driver.

The search decides what is tried; the study records it, so that Optuna's dashboard, importance
plots and fronts work on it. The store stays the truth: a result is in the store before the
ledger hears of it, and a configuration whose trial is already complete is not recorded again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from specdec_core.errors import StoreError
from specdec_core.search.outcome import Failure, Loss, Score, ScoreBounds
from specdec_core.search.storage import engine_options, try_lock, without_password
from specdec_core.skip import SkipConfig, SkipUnit, UnitKind

logger = logging.getLogger(__name__)

_SPACE = "space_hash"


def study_name(domain: str, target: str, drafter: str, config_hash: str) -> str:
    """Return the name of the study of one search configuration."""
    parts = [re.sub(r"[^\w.=-]+", "-", part).strip("-") for part in (domain, target, drafter)]
    return "tss/" + "/".join([*parts, config_hash[:12]])


@dataclass(slots=True)
class StudyLedger:
    """Records configurations of one search as trials of one study.

    Only one process may write to a study: the first to open it holds a lock until `close` or
    its death. Whoever comes second gets a ledger that records nothing (`is_owner` is false);
    as both search the same space with the same parameters, the first records all of it.

    Use `open`, not the constructor.
    """

    name: str
    is_owner: bool
    _study: optuna.Study | None
    _distributions: dict[str, BaseDistribution]
    _units: tuple[SkipUnit, ...]
    _lock: TextIO | None = None
    _complete: set[str] = field(default_factory=set)
    _running: dict[str, optuna.Trial] = field(default_factory=dict)
    _pruned: set[str] = field(default_factory=set)
    _reopened: dict[str, tuple[SkipConfig, int]] = field(default_factory=dict)
    """Sets that an earlier driver dropped and this one may finish."""

    @classmethod
    def open(
        cls,
        url: str,
        name: str,
        *,
        units: Sequence[SkipUnit],
        space_hash: str,
        lock_path: Path,
        attributes: Mapping[str, Any] | None = None,
    ) -> StudyLedger:
        """Open or create the study, and fail the trials that a dead driver left running.

        Args:
            url: SQLAlchemy URL of the Optuna storage.
            name: Study name, see `study_name`.
            units: Candidate units, one parameter each: 1 is left out, 0 is kept.
            space_hash: Identity of the units; a study of another space is not continued, one
                of a name of its own is opened instead.
            lock_path: File that is locked while this ledger is open.
            attributes: User attributes of the study.

        Raises:
            StoreError: if the storage cannot be used.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions: dict[str, BaseDistribution] = {
            str(unit): IntDistribution(0, 1) for unit in units
        }
        lock = try_lock(lock_path)
        if lock is None:
            logger.warning(
                "study %s is being written by another search: this one leaves it alone", name
            )
            return cls(name, False, None, distributions, tuple(units))
        try:
            with _storage_faults(f"{name} in {without_password(url)}"):
                study = _open_study(url, name, space_hash)
                for key, value in (attributes or {}).items():
                    study.set_user_attr(key, value)
                ledger = cls(study.study_name, True, study, distributions, tuple(units), lock)
                ledger._recover()
        except StoreError:
            lock.close()
            raise
        return ledger

    def start(self, skip: SkipConfig, key: str, level: int) -> None:
        """Open the trial of one configuration; nothing happens where it is complete or open.

        The trial of a set that was dropped before is left alone until the set is finished.
        """
        if self._study is None or key in self._complete or key in self._running:
            return
        if key in self._pruned:
            self._reopened[key] = skip, level
            return
        self._open(skip, key, level)

    def _open(self, skip: SkipConfig, key: str, level: int) -> None:
        assert self._study is not None
        attributes = {"key": key, "skip": skip.label, "level": level}
        with _storage_faults(self.name):
            self._study.enqueue_trial(self._parameters(skip), user_attrs=attributes)
            self._running[key] = self._study.ask(self._distributions)

    def finish(self, key: str, result: Score | Failure, seconds: float | None = None) -> None:
        """Close the trial of one configuration with its two values, or as failed."""
        if self._study is not None and key in self._reopened:
            skip, level = self._reopened.pop(key)
            self._open(skip, key, level)
        trial = self._running.pop(key, None)
        if self._study is None or trial is None:
            return
        with _storage_faults(self.name):
            if isinstance(result, Failure):
                trial.set_user_attr("reason", result.reason[:1000])
                self._study.tell(trial, state=TrialState.FAIL)
                return
            trial.set_user_attr("acceptance", result.acceptance)
            trial.set_user_attr("metric", result.metric)
            if seconds is not None:
                trial.set_user_attr("seconds", seconds)
            assert result.metric is not None  # agreement stands in where items have no reference
            self._study.tell(trial, [result.acceptance, result.metric])
        self._complete.add(key)

    def add_loss(
        self,
        skip: SkipConfig,
        key: str,
        level: int,
        result: Loss | Failure,
        seconds: float | None = None,
    ) -> None:
        """Record a configuration of which only the loss was asked, once.

        It has none of the study's objectives, so its trial counts as pruned, with the nats per
        token as the attribute ``loss``; one that failed is a failed trial.
        """
        if self._study is None or key in self._pruned:
            return
        attributes: dict[str, Any] = {"key": key, "skip": skip.label, "level": level}
        if isinstance(result, Loss):
            attributes |= {"loss": result.nats, "seconds": seconds}
        else:
            attributes["reason"] = result.reason[:1000]
        trial = optuna.trial.create_trial(
            state=TrialState.PRUNED if isinstance(result, Loss) else TrialState.FAIL,
            params=self._parameters(skip),
            distributions=self._distributions,
            user_attrs=attributes,
        )
        with _storage_faults(self.name):
            self._study.add_trial(trial)
        self._pruned.add(key)

    def prune(self, key: str, bounds: ScoreBounds, history: Sequence[tuple[int, Score]]) -> None:
        """Close the trial of a configuration that was dropped unfinished.

        Optuna takes intermediate values of studies with one objective only, so that they are the
        attribute ``parts``, as items, acceptance and metric.

        Args:
            key: Of the whole evaluation.
            bounds: What it could still have reached.
            history: Items decoded and what they reached, after every part.
        """
        trial = self._running.pop(key, None)
        if self._study is None or trial is None:
            return
        with _storage_faults(self.name):
            trial.set_user_attr("dropped", bounds.text)
            parts = [[num_items, score.acceptance, score.metric] for num_items, score in history]
            trial.set_user_attr("parts", parts)
            self._study.tell(trial, state=TrialState.PRUNED)
        self._pruned.add(key)

    def close(self) -> None:
        """Fail what is still open and let another driver take over."""
        try:
            with _storage_faults(self.name):
                if self._study is not None:
                    for trial in self._running.values():
                        self._study.tell(trial, state=TrialState.FAIL)
        finally:
            self._running.clear()
            self._study = None
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def _parameters(self, skip: SkipConfig) -> dict[str, int]:
        return {str(unit): int(_leaves_out(skip, unit)) for unit in self._units}

    def _recover(self) -> None:
        """Fail queued and running trials of a dead driver; remember the complete ones."""
        assert self._study is not None
        orphans = 0
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state is TrialState.COMPLETE:
                self._complete.add(_key_of(trial))
            elif trial.state is TrialState.PRUNED:
                self._pruned.add(_key_of(trial))
            elif trial.state is TrialState.RUNNING:
                self._study.tell(trial.number, state=TrialState.FAIL)
                orphans += 1
            elif trial.state is TrialState.WAITING:
                # The queue is served before anything else, so that this asks for that trial.
                self._study.tell(self._study.ask(self._distributions), state=TrialState.FAIL)
                orphans += 1
        if orphans:
            logger.info("study %s: %d trials of a dead driver marked failed", self.name, orphans)


def _leaves_out(skip: SkipConfig, unit: SkipUnit) -> bool:
    if unit.kind is UnitKind.ATTENTION:
        return skip.skips_attention(unit.layer)
    if unit.kind is UnitKind.MLP:
        return skip.skips_mlp(unit.layer)
    return unit in skip.units


def _key_of(trial: FrozenTrial) -> str:
    return str(trial.user_attrs.get("key", ""))


def _open_study(url: str, name: str, space_hash: str) -> optuna.Study:
    storage = optuna.storages.RDBStorage(url, engine_kwargs=engine_options(url))
    for candidate in (name, f"{name}-{space_hash[:8]}"):
        study = optuna.create_study(
            storage=storage,
            study_name=candidate,
            directions=[StudyDirection.MAXIMIZE] * 2,
            load_if_exists=True,
        )
        if study.user_attrs.get(_SPACE, space_hash) == space_hash:
            study.set_user_attr(_SPACE, space_hash)
            return study
        logger.warning(
            "study %s has another skip space: recording under a name of its own", candidate
        )
    raise StoreError(f"study {name} and its own name both hold another space: remove one of them")


@contextmanager
def _storage_faults(what: str) -> Iterator[None]:
    """Turn every fault of Optuna and of the database below it into a StoreError."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        cause = error.__cause__ or error  # what the database said, where Optuna hides it
        said = " ".join(str(cause).split())
        raise StoreError(
            f"Optuna study {what} cannot be used ({type(cause).__name__}: {said}): check free "
            "disk space and SPECDEC_OPTUNA_URL, which must not name a database of MLflow or Prefect"
        ) from error

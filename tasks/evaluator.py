"""The evaluator of a model worker: loads the target once, then evaluates and calibrates."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from specdec_core.config.calibration import CalibrationRequest
from specdec_core.config.drafters import format_drafter
from specdec_core.config.dtype import DType
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.data.records import Suite
from specdec_core.data.suites import load_suite
from specdec_core.errors import ConfigError, DataError
from specdec_core.records import EvaluationResult
from tasks.draft_data_jobs import ShardRequest
from tasks.jobs import Evaluator, Job, JobFailure, JobResult, StopCheck

if TYPE_CHECKING:
    from specdec_core.drafts.loading import DraftShelf
    from specdec_core.models.prompt_states import PromptStates
    from specdec_core.models.target import Target

logger = logging.getLogger(__name__)

_WARM_UP_TOKENS = 16
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class ModelEvaluatorFactory:
    """Makes a `ModelEvaluator` inside a worker process; all it carries are settings."""

    settings: Settings

    def __call__(self) -> Evaluator:
        """Return a new evaluator; the target is loaded at its first job."""
        return ModelEvaluator(self.settings)


@dataclass(slots=True)
class ModelEvaluator:
    """Evaluates (sparse) targets; keeps one target, what its prompts became, and every suite.

    Evaluations whose seconds or memory are reported neither use nor find prompt states in memory.
    """

    settings: Settings
    _target: Target | None = None
    _loaded: tuple[str, DType, str, bool] | None = None
    _states: PromptStates | None = None
    _shelf: DraftShelf | None = None
    _drafts: dict[str, Target] = field(default_factory=dict)
    _suites: dict[str, Suite] = field(default_factory=dict)
    _warm: set[tuple[str, ...]] = field(default_factory=set)

    def run(self, job: Job, should_stop: StopCheck) -> JobResult:
        """Return the result of `job`.

        Raises:
            ConfigError: if the model or the suite found here is not the one asked for.
            SearchCancelledError: once `should_stop` is true.
        """
        target = self._load_target(job)
        if self._states is not None and not _shares_states(job):
            self._states.clear()
        if isinstance(job, ShardRequest):
            from tasks.draft_data_shard import make_shard

            return make_shard(job, target, should_stop)
        suite = self._load_suite(job)
        if isinstance(job, CalibrationRequest):
            from tasks.calibration import calibrate

            return calibrate(job, target, suite, should_stop)
        if job.is_timed:
            self._warm_up(job, target, suite, should_stop)
        evaluated = partial(self._evaluate, job, target, suite, should_stop)
        if not _shares_states(job) or self._states is None:
            return evaluated(None)
        try:
            return evaluated(self._states)
        except Exception as error:
            held = self._states.num_bytes
            if not held or JobFailure.of(error).kind != "memory":
                raise
            logger.warning("out of memory beside %d bytes of prompt states: trying without", held)
        self._states.clear()
        return evaluated(None)

    def _evaluate(
        self,
        job: EvaluationRequest,
        target: Target,
        suite: Suite,
        should_stop: StopCheck,
        states: PromptStates | None,
    ) -> EvaluationResult:
        if job.mode == "loss":
            from specdec_core.language_loss import evaluate_loss

            return evaluate_loss(job, target, suite, should_stop, states)
        from specdec_core.evaluation import evaluate

        assert self._shelf is not None  # made with the target
        load_model = partial(self._load_model, job)
        return evaluate(
            job, target, suite, should_stop, load_model, states, load_draft=self._shelf.load
        )

    def _warm_up(
        self, job: EvaluationRequest, target: Target, suite: Suite, should_stop: StopCheck
    ) -> None:
        """Run one item of a timed job unmeasured, once per sparse target and drafter."""
        cell = (job.skip, job.prefill, format_drafter(job.drafter))
        if cell not in self._warm:
            short = min(job.max_new_tokens, _WARM_UP_TOKENS)
            one = {"item_ids": job.item_ids[:1], "max_new_tokens": short}
            self._evaluate(job.model_copy(update=one), target, suite, should_stop, None)
            self._warm.add(cell)

    def _load_model(self, job: EvaluationRequest, reference: str) -> Target:
        """Return a draft model, loaded once for as long as the target stays."""
        identity = job.drafter_data
        if identity == job.target_identity:
            return self._load_target(job)
        if identity not in self._drafts:
            from specdec_core.models.loading import load_target
            from specdec_core.models.reference import resolve_model

            resolved = resolve_model(reference, self.settings.cache_dir, logger.info)
            _check_identity("draft model", reference, resolved.identity, identity)
            self._drafts[identity] = load_target(
                resolved,
                dtype=job.dtype,
                device=job.device,
                settings=self._settings_for(job),
                is_draft=True,
            )
        return self._drafts[identity]

    def _load_target(self, job: Job) -> Target:
        settings = self._settings_for(job)
        wanted = (job.target_identity, job.dtype, job.device, settings.native)
        if self._target is not None and self._loaded == wanted:
            return self._target
        import torch

        from specdec_core.drafts.loading import DraftShelf
        from specdec_core.models.loading import load_target
        from specdec_core.models.prompt_states import PromptStates
        from specdec_core.models.reference import resolve_model

        self._states = self._target = self._shelf = None  # frees the memory of the former one first
        self._drafts.clear()
        self._warm.clear()
        resolved = resolve_model(job.target, self.settings.cache_dir, logger.info)
        _check_identity("target", job.target, resolved.identity, job.target_identity)
        # Explicit, so that results of this process and of Ray workers take equal time.
        torch.set_num_threads(self.settings.threads)
        self._target = load_target(resolved, dtype=job.dtype, device=job.device, settings=settings)
        self._shelf, self._loaded = DraftShelf(self._target), wanted
        if settings.prompt_states_gib:
            self._states = PromptStates(int(settings.prompt_states_gib * _GIB))
        return self._target

    def _settings_for(self, job: Job) -> Settings:
        """Return the settings here with the kernels that a request asks for."""
        kernels = self.settings.kernels if isinstance(job, CalibrationRequest) else job.kernels
        return self.settings.model_copy(update={"native": kernels == "own"})

    def _load_suite(self, job: EvaluationRequest | CalibrationRequest) -> Suite:
        if job.suite_hash not in self._suites:
            suite = load_suite(job.domain, job.suite, self.settings.data)
            if suite.content_hash != job.suite_hash:
                raise DataError(
                    f"suite {job.suite!r} of domain {job.domain!r} has content "
                    f"{suite.content_hash[:12]} here, but {job.suite_hash[:12]} was asked for: "
                    "the files changed or differ on this machine"
                )
            self._suites[job.suite_hash] = suite
        return self._suites[job.suite_hash]


def _shares_states(job: Job) -> bool:
    """Whether a job reads prompts that other skip sets read too, and no clock or meter runs."""
    return isinstance(job, EvaluationRequest) and not (job.is_timed or job.record_gaps)


def _check_identity(what: str, reference: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise ConfigError(
            f"{what} {reference} has identity {found[:12]} here, but {wanted[:12]} was asked for: "
            "the checkpoint changed or another one lies there on this machine"
        )

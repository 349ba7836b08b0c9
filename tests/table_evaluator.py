"""A worker's evaluator that reads scores from a rule instead of decoding a model.

It stands in for models only: requests, results, worker processes, store and drivers are real.
Faults are asked for with files in a control folder, so that they reach worker processes.
"""

from __future__ import annotations

import functools
import os
import signal
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdec_core.config.calibration import CalibrationRequest
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.data.guards import guard_values
from specdec_core.data.records import Suite, SuiteItem
from specdec_core.errors import SearchCancelledError
from specdec_core.records import (
    EvaluationResult,
    EvaluationSummary,
    PhaseSeconds,
    SampleResult,
    StepTrace,
)
from specdec_core.skip import SkipConfig
from tasks.jobs import Job
from tasks.prepare import TargetInfo, Workload

NUM_LAYERS = 6
NUM_ITEMS = 40
OUTPUT_TOKENS = 25
WRONG_POSITION = 7

# Committed tokens per step and metric change of each block; sets add up.
GAINS = {1: (-0.3, -0.05), 2: (0.4, 0.02), 3: (0.2, 0.01), 4: (0.5, -0.2)}


def workload(
    target: str = "path:/table",
    domain: str = "translation",
    suite: str | None = None,
    dtype: str = "auto",
    settings: Settings | None = None,
) -> Workload:
    """A `Preparer`: six layers, forty items."""
    metric = None if domain == "chat" else "bleu"
    items = [
        SuiteItem(
            f"item-{i:02d}",
            domain,
            (f"prompt {i}",),
            (f"answer {i}",),
            metric,
            {"category": "odd" if i % 2 else "even"},
        )
        for i in range(NUM_ITEMS)
    ]
    info = TargetInfo(target, "table-identity", "base", "llama", NUM_LAYERS, "float32", "cpu")
    return Workload(info, Suite.of("table", domain, items, "builtin"), "template", "code")


def config(**changes: object) -> SearchConfig:
    values = {
        "domain": "translation",
        "target": "path:/table",
        "units": "block",
        "beam": 2,
        "depth": 2,
        "num_selection": 8,
        "num_heldout": 20,
    }
    return SearchConfig.model_validate(values | changes)


# Loss that each block left out adds, nats per token.
LOSSES = {1: 0.2, 2: 0.4, 3: 0.3, 4: 0.1}


@dataclass(frozen=True)
class TableEvaluator:
    """Answers requests by rule; see `Control` for its faults."""

    control: Path

    def __call__(self) -> TableEvaluator:
        """Be its own factory: it has no state."""
        return self

    def run(self, job: Job, should_stop: Callable[[], bool]) -> EvaluationResult:
        assert not isinstance(job, CalibrationRequest)
        Control(self.control).begin(job, should_stop)
        differing = Control(self.control).differing
        samples = tuple(_sample(job, item, differing.get(item)) for item in job.item_ids)
        if job.drafter.method != "none":
            is_short = functools.partial(Control(self.control)._has, "short")
            samples = tuple(_cut(one) if is_short(one.item_id) else one for one in samples)
        summary = _summary(samples)
        if job.mode == "loss":
            layers = [unit.layer for unit in SkipConfig.parse(job.skip).units]
            loss = 2.0 + sum(LOSSES[layer] for layer in layers)
            if Control(self.control)._has("nan-loss", SkipConfig.parse(job.skip).label):
                loss = float("nan")
            summary = summary.model_copy(update={"loss": loss})
        return EvaluationResult(
            key=job.key,
            summary=summary,
            samples=samples,
            phases=PhaseSeconds(forward=sum(s.seconds or 0.0 for s in samples)),
            wall_s=0.01,
            hardware="table",
        )


@dataclass(frozen=True)
class Control:
    """Files that make the evaluator fail, and the list of what it was asked."""

    folder: Path

    def begin(self, job: EvaluationRequest, should_stop: Callable[[], bool]) -> None:
        label = SkipConfig.parse(job.skip).label
        with (self.folder / "calls").open("a") as file:
            file.write(f"{job.key} {label} {os.getpid()}\n")
        self._sleep(should_stop)
        if self._has("poison", label):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._has("raise", label):
            raise ValueError(f"{label} is broken")
        if job.record_gaps and (self.folder / "raise-gaps").exists():
            raise ValueError("no gaps today")
        if self._has("raise-memory", label):
            raise MemoryError(f"no room for {label}")
        once = self.folder / f"die-once-{label}"
        if once.exists():
            once.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def _sleep(self, should_stop: Callable[[], bool]) -> None:
        path = self.folder / "sleep"
        deadline = time.monotonic() + (float(path.read_text()) if path.exists() else 0.0)
        while time.monotonic() < deadline:
            if should_stop():
                raise SearchCancelledError("told to stop")
            time.sleep(0.01)

    def _has(self, name: str, label: str) -> bool:
        path = self.folder / name
        return path.exists() and label in path.read_text().split()

    @property
    def differing(self) -> dict[str, float]:
        """Items that drafters get wrong, with the logit gap where they do; from a file."""
        path = self.folder / "differ"
        pairs = path.read_text().split() if path.exists() else []
        return {item: float(gap) for item, _, gap in (pair.partition("=") for pair in pairs)}

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Key and skip label of every attempt, in order."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split()[0], line.split()[1]) for line in lines]


def expected(skip: str, *, heldout: bool = False) -> tuple[float, float]:
    """Acceptance (before rounding to whole steps) and metric of a skip set, by the rule."""
    layers = [unit.layer for unit in SkipConfig.parse(skip).units]
    acceptance = 2.0 + sum(GAINS[layer][0] for layer in layers)
    return acceptance, 0.5 + sum(GAINS[layer][1] for layer in layers)


def _sample(job: EvaluationRequest, item_id: str, gap: float | None) -> SampleResult:
    acceptance, metric = expected(job.skip)
    noise = (zlib.crc32(item_id.encode()) % 100 - 50) / 1000
    if job.drafter.method == "none":
        acceptance = 1.0
    trace = _trace(acceptance)
    token_ids = tuple(range(OUTPUT_TOKENS))
    gaps = tuple(5.0 for _ in token_ids)
    if gap is not None:
        gaps = (*gaps[:WRONG_POSITION], gap, *gaps[WRONG_POSITION + 1 :])
        if job.drafter.method != "none":
            token_ids = (*token_ids[:WRONG_POSITION], 99, *token_ids[WRONG_POSITION + 1 :])
    is_alone = job.batch_size == 1 and job.mode == "decode"
    score = None if job.domain == "chat" else metric + noise
    return SampleResult(
        item_id=item_id,
        prompt_tokens=4,
        token_ids=token_ids,
        text=f"{item_id} by {job.skip or 'dense'}",
        answer=f"{item_id} by {job.skip or 'dense'}",
        useful_tokens=OUTPUT_TOKENS,
        finish_reason="stop_token",
        score=score,
        raw_score=score,
        trace=trace,
        gaps=gaps if job.record_gaps else (),
        seconds=0.01 * len(trace.committed) if is_alone else None,
        step_seconds=(0.01,) * len(trace.committed) if is_alone else (),
    )


def _cut(sample: SampleResult) -> SampleResult:
    """The sample without its last token."""
    return sample.model_copy(update={"token_ids": sample.token_ids[:-1]})


def _trace(acceptance: float) -> StepTrace:
    """Steps that commit the tokens after the first, `acceptance` on average as near as may be."""
    total = OUTPUT_TOKENS - 1
    num_steps = max(1, round(total / acceptance))
    committed = [total // num_steps + (i < total % num_steps) for i in range(num_steps)]
    return StepTrace(
        drafted=(4,) * num_steps,
        depth=(4,) * num_steps,
        accepted=tuple(count - 1 for count in committed),
        committed=tuple(committed),
    )


def _summary(samples: tuple[SampleResult, ...]) -> EvaluationSummary:
    guards = guard_values([s.token_ids for s in samples], [s.finish_reason for s in samples])
    scores = [s.score for s in samples if s.score is not None]
    metric = sum(scores) / len(scores) if scores else None
    committed = sum(sum(s.trace.committed) for s in samples)
    num_steps = sum(len(s.trace.committed) for s in samples)
    seconds = sum(s.seconds or 0.0 for s in samples)
    return EvaluationSummary(
        num_samples=len(samples),
        num_scored=len(scores),
        metric=metric,
        metric_raw=metric,
        num_steps=num_steps,
        num_tokens=OUTPUT_TOKENS * len(samples),
        num_useful_tokens=OUTPUT_TOKENS * len(samples),
        num_drafted=4 * num_steps,
        num_accepted=committed - num_steps,
        acceptance_length=committed / num_steps,
        hit_rate=1.0,
        mean_output_tokens=guards.mean_output_tokens,
        stop_rate=guards.stop_rate,
        distinct_2=guards.distinct_2,
        longest_repeat=guards.longest_repeat,
        prefill_s=0.0,
        decode_s=seconds,
        tokens_per_s=committed / seconds if seconds else 0.0,
    )

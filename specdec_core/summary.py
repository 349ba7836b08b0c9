"""Pooled figures of scored samples, and of an evaluation that was done in parts."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.bench.metrics import count_acceptance
from specdec_core.data.guards import guard_values
from specdec_core.records import (
    EvaluationResult,
    EvaluationSummary,
    PhaseSeconds,
    PromptWork,
    SampleResult,
)


def summarize(samples: Sequence[SampleResult], phases: PhaseSeconds) -> EvaluationSummary:
    """Return the pooled figures of scored samples: sums first, then ratios."""
    counts = count_acceptance(sample.trace for sample in samples)
    guards = guard_values([s.token_ids for s in samples], [s.finish_reason for s in samples])
    scored = [s for s in samples if s.score is not None and s.raw_score is not None]
    num_tokens = sum(len(sample.token_ids) for sample in samples)
    after_first = num_tokens - len(samples)
    return EvaluationSummary(
        num_samples=len(samples),
        num_scored=len(scored),
        metric=_mean([s.score for s in scored if s.score is not None]),
        metric_raw=_mean([s.raw_score for s in scored if s.raw_score is not None]),
        num_steps=counts.num_steps,
        num_tokens=num_tokens,
        num_useful_tokens=sum(sample.useful_tokens for sample in samples),
        num_drafted=counts.num_drafted,
        num_accepted=counts.num_accepted,
        # Outputs of one token need no step at all: nothing was accepted, nothing was lost.
        acceptance_length=counts.acceptance_length if counts.num_steps else 1.0,
        hit_rate=counts.hit_rate if counts.num_steps else 0.0,
        mean_output_tokens=guards.mean_output_tokens,
        stop_rate=guards.stop_rate,
        distinct_2=guards.distinct_2,
        longest_repeat=guards.longest_repeat,
        prefill_s=phases.prefill,
        decode_s=phases.decode,
        tokens_per_s=after_first / phases.decode if after_first and phases.decode else 0.0,
    )


def join_results(key: str, parts: Sequence[EvaluationResult]) -> EvaluationResult:
    """Return the result of a whole evaluation from those of its parts, in the order of its items.

    Args:
        key: Of the whole.
        parts: At least one.
    """
    samples = tuple(sample for part in parts for sample in part.samples)
    phases = sum((part.phases for part in parts), PhaseSeconds())
    first = parts[0].summary
    memory = {
        "weight_bytes": first.weight_bytes,
        "cache_bytes_per_token": first.cache_bytes_per_token,
    }
    return EvaluationResult(
        key=key,
        summary=summarize(samples, phases).model_copy(update=memory),
        samples=samples,
        phases=phases,
        wall_s=sum(part.wall_s for part in parts),
        peak_memory_bytes=max(part.peak_memory_bytes for part in parts),
        hardware="; ".join(dict.fromkeys(part.hardware for part in parts)),
        prompt_work=PromptWork(
            computed=sum(part.prompt_work.computed for part in parts),
            reused=sum(part.prompt_work.reused for part in parts),
        ),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

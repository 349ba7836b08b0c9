"""Frozen records of results that cross process boundaries: no tensors, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specdec_core.config.base import Record

ModelKind = Literal["base", "chat"]
FinishReason = Literal["stop_token", "stop_string", "length"]
DifferenceKind = Literal["tie", "defect", "unknown"]
# Where an output token came from: the prefill, the draft at a depth (1 is below the root), or the
# target itself at the end of a step.
TokenOrigin = Literal["prefill", "bonus"] | int
ProofLevel = Literal["exact", "up-to-ties", "same-distribution", "lossy", "unproven", "defect"]


class StepTrace(Record):
    """Counts of every verify step of one generation, as parallel tuples over the steps.

    A step that offers nothing has 0 drafted nodes and depth 0. All acceptance metrics are
    functions of this record.
    """

    drafted: tuple[int, ...] = Field((), description="draft nodes offered, root not counted")
    depth: tuple[int, ...] = Field((), description="longest drafted path, tokens")
    drafting: tuple[int, ...] = Field(
        (), description="nodes that rode along to draft, never verified; empty if none ever did"
    )
    accepted: tuple[int, ...] = Field(
        (), description="draft tokens kept in the output, bonus not counted"
    )
    committed: tuple[int, ...] = Field(
        (), description="tokens that reached the output, after stop and length cuts"
    )

    def origins(self) -> tuple[TokenOrigin, ...]:
        """Return where every token of the output came from, in order."""
        found: list[TokenOrigin] = ["prefill"]
        for accepted, committed in zip(self.accepted, self.committed, strict=True):
            found += range(1, accepted + 1)
            found += ["bonus"] * (committed - accepted)
        return tuple(found)


class PhaseSeconds(Record):
    """Seconds of one generation or batch by phase, monotonic clock, device synchronised."""

    prefill: float = 0.0
    draft: float = 0.0
    forward: float = 0.0
    verify: float = 0.0
    commit: float = 0.0

    @property
    def decode(self) -> float:
        """Seconds after prefill."""
        return self.draft + self.forward + self.verify + self.commit

    def __add__(self, other: PhaseSeconds) -> PhaseSeconds:
        return PhaseSeconds(
            prefill=self.prefill + other.prefill,
            draft=self.draft + other.draft,
            forward=self.forward + other.forward,
            verify=self.verify + other.verify,
            commit=self.commit + other.commit,
        )


class SampleResult(Record):
    """One suite item decoded by one configuration."""

    item_id: str
    prompt_tokens: int = Field(ge=1)
    token_ids: tuple[int, ...] = Field(description="generated ids, stop token included")
    text: str = Field(description="generated text, untrimmed, special tokens left out")
    answer: str = Field(description="text after answer extraction, what the metric compares")
    useful_tokens: int = Field(ge=0, description="generated tokens up to the end of the answer")
    finish_reason: FinishReason
    score: float | None = Field(None, description="task metric on the answer, in [0, 1]")
    raw_score: float | None = Field(None, description="task metric on the untrimmed text")
    trace: StepTrace
    gaps: tuple[float, ...] = Field(
        (), description="best minus second best logit per output position, where asked for"
    )
    seconds: float | None = Field(None, description="decode seconds, only where batch size is 1")
    step_seconds: tuple[float, ...] = Field(
        (),
        description="seconds of every step of the trace, to the microsecond, only where batch size "
        "is 1 and was measured so; they add up to `seconds`",
    )
    token_ends: tuple[int, ...] = Field(
        (),
        description="characters of `text` up to the end of each token, only where batch size is "
        "1; a character of several tokens belongs to the last of them",
    )


class EvaluationSummary(Record):
    """Pooled figures of one evaluation: functions of its samples and of its seconds by phase."""

    num_samples: int
    num_scored: int = Field(description="samples with a reference and a metric")
    metric: float | None = Field(None, description="mean score over the scored samples")
    metric_raw: float | None = Field(None, description="mean raw score over the scored samples")
    num_steps: int
    num_tokens: int = Field(description="committed output tokens")
    num_useful_tokens: int
    num_drafted: int
    num_accepted: int
    acceptance_length: float = Field(description="committed tokens per verify step, pooled")
    hit_rate: float = Field(description="share of steps that offered a draft")
    mean_output_tokens: float
    stop_rate: float = Field(description="share of samples that ended before the length limit")
    distinct_2: float = Field(description="distinct over all token bigrams, pooled")
    longest_repeat: float = Field(
        description="mean over samples of the longest token n-gram that occurs twice, tokens"
    )
    prefill_s: float
    decode_s: float
    tokens_per_s: float = Field(description="committed tokens after the first / decode seconds")
    weight_bytes: int | None = Field(
        None, description="of the target without what it skips, norms and biases left out"
    )
    cache_bytes_per_token: int | None = Field(None, description="keys and values it keeps")
    loss: float | None = Field(
        None, description="nats per token of the references, where mode 'loss' asked for it"
    )


class PromptWork(Record):
    """Prompt tokens times layers of one evaluation, by where their states came from."""

    computed: int = Field(0, ge=0, description="run through a layer")
    reused: int = Field(0, ge=0, description="taken over from an evaluation before it")


class EvaluationResult(Record):
    """The stored answer to one EvaluationRequest."""

    key: str
    summary: EvaluationSummary
    samples: tuple[SampleResult, ...]
    phases: PhaseSeconds
    wall_s: float = Field(description="seconds of the whole evaluation in the worker")
    peak_memory_bytes: int = Field(0, description="peak resident memory of the worker process")
    hardware: str = Field("", description="processor or accelerator, threads, kernels")
    prompt_work: PromptWork = Field(
        default_factory=PromptWork,
        description="what sharing prompt states saved, 0 where they were not shared; not stored",
    )

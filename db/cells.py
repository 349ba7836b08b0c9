"""The records of benchmark cells: figures, raw timings and the certificate of their outputs."""

from __future__ import annotations

from typing import Self

from pydantic import AwareDatetime, Field, model_validator

from db.clock import utc_now
from db.schemas import Interval, ResultStatus
from specdec_core.config.base import Record
from specdec_core.config.dtype import DType
from specdec_core.records import DifferenceKind, PhaseSeconds, ProofLevel

OUTPUT_RUN = 32
"""Output tokens per run of `CellFigures.acceptance_by_output`."""


class CellDifference(Record):
    """Where one item's output leaves the autoregressive one."""

    item_id: str
    position: int = Field(ge=0, description="0-based output position of the first difference")
    expected_token: int | None = Field(
        None, description="autoregressive token there; null where that output had ended"
    )
    token: int | None = Field(None, description="the method's token; null where it had ended")
    gap: float | None = Field(
        None, description="the target's best minus second best logit there, where it is known"
    )
    kind: DifferenceKind = Field(
        description="'tie' where rounding may decide, else 'defect'; 'unknown' without a gap to "
        "judge by, or where truncated sampling may have kept another token"
    )


class LawTest(Record):
    """Chi-square test of sampled tokens against the target's law, with its negative control.

    Drafter and verification rule are the cell's; the target is a tiny one whose law is computed
    exactly. The control draws by a rule that is known to be wrong and must fail.
    """

    num_draws: int = Field(ge=1)
    num_degrees: int = Field(ge=1, description="degrees of freedom")
    p_value: float = Field(ge=0.0, le=1.0)
    control_p_value: float = Field(ge=0.0, le=1.0)
    significance: float = Field(gt=0.0, lt=1.0, description="p below it contradicts the law")

    @property
    def is_kept(self) -> bool | None:
        """Whether the law was kept; None where the control passed too and nothing is known."""
        if self.p_value < self.significance:
            return False
        return True if self.control_p_value < self.significance else None


class Certificate(Record):
    """What was proven about a cell's outputs, and by what evidence."""

    level: ProofLevel = Field(
        description="'exact': all equal in float64; 'up-to-ties': equal except where the target's "
        "two best logits are within `tie_gap`; 'same-distribution': the sampled law is kept; "
        "'lossy': the rule promises none of these; 'unproven': differences could not be judged; "
        "'defect': a difference beyond rounding"
    )
    num_items: int = Field(ge=1, description="outputs compared with autoregressive decoding")
    num_identical: int = Field(0, ge=0, description="items equal to autoregressive output")
    num_ties: int = Field(0, ge=0, description="items that differ first at a numeric tie")
    num_defects: int = Field(0, ge=0, description="items that differ beyond what rounding explains")
    tie_gap: float = Field(ge=0.0, description="largest logit gap that counts as a tie")
    differences: tuple[CellDifference, ...] = Field(
        (), description="one per item that is not equal to autoregressive output"
    )
    law: LawTest | None = Field(None, description="test of the sampled distribution, if made")

    @property
    def is_sound(self) -> bool:
        """Whether nothing speaks against what the method promises."""
        return self.level not in {"defect", "unproven"}


class Percentiles(Record):
    """Percentiles of single measurements, linear interpolation."""

    num: int = Field(ge=1, description="measurements")
    p50: float
    p90: float
    p99: float


class CellFigures(Record):
    """Pooled figures of a benchmark cell; every one is a function of its stored evaluations.

    Counts are those of the first repeat, which lossless methods repeat exactly; times are summed
    over all repeats.
    """

    num_items: int = Field(ge=1)
    num_tokens: int = Field(ge=0, description="committed output tokens")
    num_steps: int = Field(0, ge=0, description="verify steps")
    acceptance_length: float = Field(description="committed tokens per verify step, pooled")
    mean_accepted_tokens: float | None = Field(None, description="accepted + 1 per step (MAT)")
    mean_request_acceptance_length: float | None = Field(
        None, description="mean over items of their own acceptance length; not the headline"
    )
    tokens_per_forward: float | None = Field(
        None, description="output tokens per target forward, prefills counted on both sides"
    )
    hit_rate: float | None = Field(None, description="share of steps that offered a draft (HR)")
    acceptance_length_on_hits: float | None = Field(
        None, description="accepted + 1 per step that offered a draft (AL)"
    )
    decoding_efficiency: float | None = Field(
        None, description="HR x AL + (1 - HR), equal to MAT (DE)"
    )
    accepted_p25: float | None = Field(None, description="quartile of accepted tokens per step")
    accepted_median: float | None = None
    accepted_p75: float | None = None
    position_acceptance: tuple[float, ...] = Field(
        (), description="share of hits that accepted at least 1, 2, .. tokens"
    )
    conditional_position_acceptance: tuple[float, ...] = Field(
        (), description="of the hits that accepted k - 1 tokens, the share that accepted k"
    )
    hits_by_accepted: tuple[int, ...] = Field(
        (), description="entry a counts the hits that accepted a tokens"
    )
    acceptance_by_output: tuple[float | None, ...] = Field(
        (), description=f"acceptance length by output position, in runs of {OUTPUT_RUN} tokens"
    )
    drafting_nodes_per_step: float | None = Field(
        None, description="nodes that rode along in the target's forward only to draft (Dft)"
    )
    candidate_nodes_per_step: float | None = Field(
        None, description="draft nodes verified per step (Ver)"
    )
    metric: float | None = Field(None, description="mean task score, in [0, 1]")
    tokens_per_s: float = Field(description="committed tokens after the first / decode seconds")
    num_repeats: int = Field(1, ge=1, description="timed passes over the items")
    phases: PhaseSeconds | None = Field(None, description="seconds by phase, all repeats together")
    draft_share: float | None = Field(
        None, description="drafter's share of decode seconds: its bookkeeping and its own forwards"
    )
    overhead_share: float | None = Field(
        None, description="share of decode seconds outside the target's forwards"
    )
    step_ms: Percentiles | None = Field(
        None, description="milliseconds per step, over all steps of all items and repeats"
    )
    token_ms: Percentiles | None = Field(
        None,
        description="milliseconds per committed token after the first, over requests: all items, "
        "all repeats",
    )
    drift: float | None = Field(
        None, description="decode seconds of the last third of the repeats over the first, - 1"
    )
    speedup: Interval | None = Field(
        None, description="over autoregressive decoding, ratio of totals; only `num_paired` items"
    )
    num_paired: int = Field(
        0, ge=0, description="items in the speedup: those as long as their autoregressive output"
    )
    speedup_of_mean_rates: float | None = Field(
        None, description="mean tokens/s over items / the same of autoregressive (Spec-Bench)"
    )
    mean_request_speedup: float | None = Field(
        None, description="mean over items of their own speedup; not the headline"
    )
    peak_memory_bytes: int | None = None


class CellSample(Record):
    """Raw timings of one item of a benchmark cell."""

    item_id: str
    num_tokens: int = Field(ge=0)
    num_steps: int = Field(ge=0, description="verify steps")
    seconds: tuple[float, ...] = Field(description="decode seconds of every repeat")
    baseline_seconds: tuple[float, ...] = Field(
        (), description="decode seconds of autoregressive decoding, repeats alternated"
    )


class BenchmarkCell(Record):
    """One (target, method, domain) cell of a benchmark run."""

    run_id: str
    target: str
    target_identity: str
    dtype: DType
    domain: str = Field(description="domain, or domain@suite where the suite was named")
    drafter: str
    skip: str = ""
    status: ResultStatus
    error: str | None = Field(None, description="type and message, when failed")
    suite_hash: str = ""
    hardware: str = ""
    evaluation_key: str | None = None
    baseline_key: str | None = Field(None, description="evaluation without a drafter")
    sampling: str = Field("", description="canonical sampling text, empty for greedy decoding")
    is_lossless: bool = Field(
        True, description="whether the verification rule promises the target's own output"
    )
    is_synthetic: bool = Field(
        False, description="whether acceptance is made up, to study cost: no method's result"
    )
    certificate: Certificate | None = Field(None, description="present when done")
    figures: CellFigures | None = Field(None, description="present when done")
    samples: tuple[CellSample, ...] = ()
    created_at: AwareDatetime = Field(default_factory=utc_now)

    @property
    def method(self) -> str:
        """Drafter, with what must stand beside every figure of it."""
        return marked(self.drafter, is_lossless=self.is_lossless, is_synthetic=self.is_synthetic)

    @model_validator(mode="after")
    def _done_has_figures(self) -> Self:
        if (self.status == "done") != (self.figures is not None):
            raise ValueError(
                f"cell {self.domain}/{self.drafter} is {self.status!r}: figures belong to done "
                "cells, and only to them"
            )
        return self


def marked(drafter: str, *, is_lossless: bool, is_synthetic: bool) -> str:
    """Return a drafter with the words that must stand beside every figure of it."""
    found = (("lossy", not is_lossless), ("synthetic", is_synthetic))
    words = ", ".join(word for word, is_so in found if is_so)
    return f"{drafter} [{words}]" if words else drafter

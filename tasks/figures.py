"""Pooled figures of benchmark cells: functions of traces and seconds, for one cell or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from db.cells import OUTPUT_RUN, CellFigures, Percentiles
from db.schemas import Interval
from specdec_core.bench.latency import percentiles, step_milliseconds, token_milliseconds
from specdec_core.bench.metrics import (
    AcceptanceCounts,
    acceptance_by_output_position,
    count_acceptance,
    mean_request_acceptance_length,
)
from specdec_core.bench.statistics import (
    RequestTimes,
    mean_request_speedup,
    speedup_interval,
    speedup_of_mean_rates,
)
from specdec_core.errors import MeasurementError
from specdec_core.records import PhaseSeconds, SampleResult
from tasks.heldout_costs import to_interval

_QUARTILES = {"accepted_p25": 0.25, "accepted_median": 0.5, "accepted_p75": 0.75}


@dataclass(frozen=True, slots=True)
class Measured:
    """Outputs of one method and of autoregressive decoding on the same items.

    Attributes:
        mine: One tuple of samples per repeat, items in one order.
        plain: The same of autoregressive decoding.
        phases: Seconds of the method by phase, all repeats together.
        is_plain: Whether the method is autoregressive decoding itself.
        needs_equal_lengths: Whether outputs of another length than the autoregressive one are
            left out of the speedup, as for methods that promise equal outputs.
        peak_memory_bytes: Largest memory of a worker; None if unknown.
    """

    mine: tuple[tuple[SampleResult, ...], ...]
    plain: tuple[tuple[SampleResult, ...], ...]
    phases: PhaseSeconds
    is_plain: bool
    needs_equal_lengths: bool
    peak_memory_bytes: int | None = None

    def __add__(self, other: Measured) -> Measured:
        """Return both together, as if they were one cell of more items."""
        memories = [m for m in (self.peak_memory_bytes, other.peak_memory_bytes) if m is not None]
        return Measured(
            mine=_joined(self.mine, other.mine),
            plain=_joined(self.plain, other.plain),
            phases=self.phases + other.phases,
            is_plain=self.is_plain,
            needs_equal_lengths=self.needs_equal_lengths,
            peak_memory_bytes=max(memories, default=None),
        )

    def paired(self) -> list[int]:
        """Return the items that the speedup is of."""
        pairs = zip(self.mine[0], self.plain[0], strict=True)
        return [
            index
            for index, (own, other) in enumerate(pairs)
            if min(len(own.token_ids), len(other.token_ids)) > 1
            and (len(own.token_ids) == len(other.token_ids) or not self.needs_equal_lengths)
            and min(_seconds(self.mine, index), _seconds(self.plain, index)) > 0
        ]

    def times(self) -> tuple[RequestTimes, RequestTimes] | None:
        """Return tokens and seconds of method and baseline on the paired items, if there are any.

        Tokens are those after the first, of one repeat; seconds the mean over repeats.
        """
        indices = self.paired()
        if not indices:
            return None
        mine, plain = (
            RequestTimes(
                [float(len(repeats[0][index].token_ids) - 1) for index in indices],
                [_seconds(repeats, index) / len(repeats) for index in indices],
            )
            for repeats in (self.mine, self.plain)
        )
        return mine, plain


def figures_of(measured: Measured, metric: float | None) -> CellFigures:
    """Return the pooled figures of one cell or of several added up.

    Args:
        measured: What was decoded.
        metric: Mean task score; None where there is none, or several that do not average.
    """
    samples = measured.mine[0]
    tokens = sum(max(0, len(sample.token_ids) - 1) for sample in samples) * len(measured.mine)
    seconds = sum(_seconds(measured.mine, index) for index in range(len(samples)))
    return CellFigures(
        num_items=len(samples),
        num_tokens=sum(len(sample.token_ids) for sample in samples),
        metric=metric,
        tokens_per_s=tokens / seconds if seconds else 0.0,
        num_repeats=len(measured.mine),
        peak_memory_bytes=measured.peak_memory_bytes,
        drift=_drift(measured.mine),
        **_latencies(measured.mine),
        **_acceptance(samples),
        **_phases(measured.phases),
        **_speedups(measured),
    )


def _acceptance(samples: Sequence[SampleResult]) -> dict[str, Any]:
    traces = [sample.trace for sample in samples]
    counts: AcceptanceCounts = count_acceptance(traces)
    if not counts.num_steps:
        # Outputs of one token need no step at all: nothing was accepted, nothing was lost.
        return {"acceptance_length": 1.0}
    return {
        "num_steps": counts.num_steps,
        "acceptance_length": counts.acceptance_length,
        "mean_accepted_tokens": counts.mean_accepted_tokens,
        "mean_request_acceptance_length": mean_request_acceptance_length(traces),
        "tokens_per_forward": counts.tokens_per_forward,
        "hit_rate": counts.hit_rate,
        "acceptance_length_on_hits": counts.acceptance_length_on_hits,
        "decoding_efficiency": counts.decoding_efficiency,
        "position_acceptance": counts.position_acceptance() if counts.num_hits else (),
        "conditional_position_acceptance": counts.conditional_position_acceptance(),
        "hits_by_accepted": counts.hits_by_accepted,
        "acceptance_by_output": acceptance_by_output_position(traces, OUTPUT_RUN),
        "drafting_nodes_per_step": counts.mean_drafting_nodes,
        "candidate_nodes_per_step": counts.mean_drafted_nodes,
        **{name: counts.accepted_quantile(q) for name, q in _QUARTILES.items()},
    }


def _phases(phases: PhaseSeconds) -> dict[str, Any]:
    if not phases.decode:
        return {"phases": phases}
    return {
        "phases": phases,
        "draft_share": phases.draft / phases.decode,
        "overhead_share": 1.0 - phases.forward / phases.decode,
    }


def _latencies(repeats: Sequence[Sequence[SampleResult]]) -> dict[str, Any]:
    """Percentiles over steps and over requests; nothing where nothing was timed."""
    samples = [sample for repeat in repeats for sample in repeat]
    timed = {"step_ms": step_milliseconds(samples), "token_ms": token_milliseconds(samples)}
    found = {}
    for name, values in timed.items():
        if values:
            p50, p90, p99 = percentiles(values)
            found[name] = Percentiles(num=len(values), p50=p50, p90=p90, p99=p99)
    return found


def _speedups(measured: Measured) -> dict[str, Any]:
    """The speedup under its definitions; nothing for autoregressive decoding itself."""
    times = None if measured.is_plain else measured.times()
    if times is None:
        return {}
    return {
        "speedup": _interval(*times),
        "num_paired": len(times[0].tokens),
        "speedup_of_mean_rates": speedup_of_mean_rates(*times),
        "mean_request_speedup": mean_request_speedup(*times),
    }


def _interval(mine: RequestTimes, plain: RequestTimes) -> Interval | None:
    try:
        return to_interval(speedup_interval(mine, plain))
    except MeasurementError:
        return None


def _drift(repeats: Sequence[Sequence[SampleResult]]) -> float | None:
    """Change of decode seconds from the first third of the repeats to the last."""
    third = max(1, len(repeats) // 3)
    totals = [sum(sample.seconds or 0.0 for sample in samples) for samples in repeats]
    if len(totals) < 2 or not sum(totals[:third]):
        return None
    return sum(totals[-third:]) / sum(totals[:third]) - 1.0


def _seconds(repeats: Sequence[Sequence[SampleResult]], index: int) -> float:
    return sum(samples[index].seconds or 0.0 for samples in repeats)


def _joined(
    first: tuple[tuple[SampleResult, ...], ...], second: tuple[tuple[SampleResult, ...], ...]
) -> tuple[tuple[SampleResult, ...], ...]:
    return tuple(mine + other for mine, other in zip(first, second, strict=True))

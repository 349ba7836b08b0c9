"""Plain sentences about a finished search: what was tried, what it would cost, what to try next."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec_core.config.search import IGNORE_TOLERANCES, StrategyName, UnitChoice
from specdec_core.search.outcome import Ranked, SearchOutcome, half_count

# Losing more than this is no trade anyone asks for, whatever it gains.
LOOSEST_ADVISED = -0.3
NUM_NEAR_MISSES = 3
_OTHER_UNITS: dict[UnitChoice, UnitChoice] = {
    "block": "attention",
    "attention": "halves",
    "mlp": "halves",
    "halves": "all",
}


@dataclass(frozen=True, slots=True)
class SearchContext:
    """What `advice` needs to know besides the outcome."""

    epsilon_acceptance: float
    epsilon_metric: float
    units: UnitChoice
    beam: int
    depth: int
    num_candidates: int
    num_selection: int
    num_available: int
    """Items of the suite; more than this cannot be asked for."""
    metric_interval: tuple[float, float] | None = None
    """Relative change of the metric of the best sparse configuration on the selection items."""
    strategy: StrategyName = "tss"
    metric_name: str = "metric"
    """What the metric is: that of the items, or agreement with the dense output."""


def advice(outcome: SearchOutcome, context: SearchContext) -> tuple[str, ...]:
    """Return sentences for people, most important first; every figure comes from `outcome`."""
    if context.strategy in IGNORE_TOLERANCES:
        return (_built(outcome, context), *_more_items(context))
    sentences = [_tried(outcome, context), _found(outcome, context)]
    sentences += _near_misses(outcome, context)
    if context.strategy == "tss":
        sentences += _looser(outcome, context)
    sentences += _more_items(context)
    sentences += _shrunk(outcome, context)
    sentences += _elsewhere(outcome, context)
    return tuple(sentences)


def _built(outcome: SearchOutcome, context: SearchContext) -> str:
    """What a baseline did; it keeps no tolerances, so nothing missed them."""
    failed = f", {len(outcome.failed)} failed" if outcome.failed else ""
    return (
        f"Strategy {context.strategy} looked at {outcome.evaluated} configurations of "
        f"{context.num_candidates} units ({context.units}){failed} and answers "
        f"{outcome.answer.skip.label}: {_gains(outcome.answer, context)} against dense on the "
        "selection items. Tolerances took no part in that; they judge it on held-out items."
    )


def near_misses(outcome: SearchOutcome, limit: int = NUM_NEAR_MISSES) -> tuple[Ranked, ...]:
    """Return the infeasible configurations closest to the tolerances, nearest first."""
    missed = [member for member in outcome.members if not member.is_feasible]
    missed.sort(key=lambda m: (m.violation, -m.gain, m.skip.sort_key))
    return tuple(missed[:limit])


def best_sparse(outcome: SearchOutcome) -> Ranked | None:
    """Return the best configuration that skips something: feasible if any is, else the nearest."""
    feasible = [member for member in outcome.pool if member.skip.units]
    if feasible:
        return min(feasible, key=lambda m: (-m.gain, -half_count(m.skip), m.skip.sort_key))
    missed = near_misses(outcome, 1)
    return missed[0] if missed else None


def needed_tolerance(member: Ranked) -> float:
    """Largest tolerance, in steps of 0.1 %, that would admit `member` on both objectives."""
    worst = min(member.gain_acceptance, member.gain_metric)
    return math.floor(round(worst * 1000, 6)) / 1000


def _gains(member: Ranked, context: SearchContext) -> str:
    text = f"acceptance {member.gain_acceptance:+.1%}"
    if member.score.metric is None:
        return text
    return f"{text}, {context.metric_name} {member.gain_metric:+.1%}"


def _tried(outcome: SearchOutcome, context: SearchContext) -> str:
    feasible = sum(1 for member in outcome.pool if member.skip.units)
    failed = f", {len(outcome.failed)} failed" if outcome.failed else ""
    kept = []
    if context.strategy in {"tss", "accept-only"}:
        kept.append(f"acceptance {context.epsilon_acceptance:+.1%}")
    if context.strategy != "accept-only" and outcome.dense.score.metric is not None:
        kept.append(f"{context.metric_name} {context.epsilon_metric:+.1%}")
    tolerances = ", ".join(kept) or "none to keep"
    return (
        f"Tried {outcome.evaluated} configurations of {context.num_candidates} units "
        f"({context.units}) on {len(outcome.levels)} levels: {feasible} met the tolerances "
        f"({tolerances}), {outcome.evaluated - feasible} did not{failed}; "
        f"stopped because: {outcome.stop_reason}."
    )


def _found(outcome: SearchOutcome, context: SearchContext) -> str:
    if outcome.answer.skip.units:
        return (
            f"On the selection items skipping {outcome.answer.skip} is best: "
            f"{_gains(outcome.answer, context)} against dense."
        )
    best = best_sparse(outcome)
    if best is None:
        return "Nothing that skips a unit could be scored, so the dense target stays."
    verb = "met the tolerances but gained less" if best.is_feasible else "came closest"
    return (
        f"On the selection items nothing beats the dense target; skipping {best.skip} {verb}: "
        f"{_gains(best, context)}."
    )


def _near_misses(outcome: SearchOutcome, context: SearchContext) -> list[str]:
    misses = near_misses(outcome)
    if not misses:
        return []
    listed = "; ".join(
        f"{m.skip} ({_gains(m, context)}; short by {m.violation:.1%})" for m in misses
    )
    return [f"Nearest misses: {listed}."]


def _looser(outcome: SearchOutcome, context: SearchContext) -> list[str]:
    """The cheapest loosening that changes the answer, if any infeasible set has more gain."""
    better = [
        member
        for member in outcome.members
        if not member.is_feasible and member.gain > outcome.answer.gain
    ]
    reason = "it has the larger summed gain"
    if not better and not outcome.answer.skip.units:
        better = [m for m in near_misses(outcome) if m.gain_acceptance > 0]
        reason = f"it trades {context.metric_name} for acceptance"
    reachable = [member for member in better if needed_tolerance(member) >= LOOSEST_ADVISED]
    if not reachable:
        return []
    member = max(reachable, key=lambda m: (needed_tolerance(m), m.gain))
    return [
        f"A tolerance of {needed_tolerance(member):.3f} would admit {member.skip} "
        f"({_gains(member, context)}); {reason}."
    ]


def _more_items(context: SearchContext) -> list[str]:
    if context.metric_interval is None:
        return []
    low, high = context.metric_interval
    if not low <= 0.0 <= high:
        return []
    sentence = (
        f"On {context.num_selection} selection items the {context.metric_name} of the best sparse "
        f"configuration lies between {low:+.1%} and {high:+.1%} of dense: that is not told "
        "apart from no change"
    )
    more = min(4 * context.num_selection, context.num_available // 2)
    if more > context.num_selection:
        factor = math.sqrt(more / context.num_selection)
        return [f"{sentence}; {more} items would narrow this about {factor:.1f}-fold."]
    return [f"{sentence}; use a larger suite, this one has {context.num_available} items."]


def shrunk_gain(gain: float, low: float, high: float) -> float:
    """Shrink a measured gain towards 0, the more the wider its 95 % interval is.

    `gain` x (1 - s^2 / gain^2) with the standard error s = (high - low) / 3.92, and 0 where s is
    the larger of the two.

    Source: James and Stein 1961, the positive part of the estimator, for one figure; as a guard
    against choosing the luckiest of many sets it is ours.
    """
    error = (high - low) / 3.92
    return gain * max(0.0, 1.0 - (error / gain) ** 2) if gain else 0.0


def _shrunk(outcome: SearchOutcome, context: SearchContext) -> list[str]:
    """What is left of the answer's gain where its interval reaches dense."""
    answer, interval = outcome.answer, context.metric_interval
    if not answer.skip.units or interval is None or not interval[0] <= 0.0 <= interval[1]:
        return []
    rest = shrunk_gain(answer.gain_metric, *interval)
    return [
        f"Shrunk towards dense by the width of that interval, the {context.metric_name} change of "
        f"{answer.skip} is {rest:+.1%} instead of {answer.gain_metric:+.1%}: expect that of other "
        "items."
    ]


def _elsewhere(outcome: SearchOutcome, context: SearchContext) -> list[str]:
    sentences = []
    if outcome.stop_reason == "depth reached" and outcome.answer.level == context.depth:
        sentences.append(
            f"The best set was found on the last level: depth {context.depth + 2} may find more."
        )
    other = _OTHER_UNITS.get(context.units)
    if not outcome.answer.skip.units and other is not None:
        sentences.append(f"Other units may be less costly to leave out: try units={other}.")
    return sentences

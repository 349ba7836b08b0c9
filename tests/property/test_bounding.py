"""A search that drops sets finds what the full search finds, whatever it drops and when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.bench.agreement import agreement
from specdec_core.search import tss
from specdec_core.search.advice import best_sparse
from specdec_core.search.bounding import Finished, is_superfluous
from specdec_core.search.bounds import ItemLimits, PartialCounts, score_bounds
from specdec_core.search.objectives import (
    AcceptanceGain,
    BothGains,
    MetricGain,
    Objective,
    Tolerances,
)
from specdec_core.search.outcome import Failure, Ranked, SearchOutcome
from specdec_core.search.part_schedule import PartSchedule
from specdec_core.search.ranking import order_level
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipConfig, SkipUnit

LIMITS = ItemLimits(max_new_tokens=7, max_path=2)


def item(generator: random.Random, steps: int | None, score: float | None) -> PartialCounts:
    """One decoded item: at most 6 tokens in steps of 1 to 3; given steps take all 6 tokens."""
    if steps is None:
        committed = generator.randrange(7)
        steps = generator.randint(-(-committed // 3), committed)
    else:
        committed = 6
    value = generator.choice([0.0, 0.25, 0.5, 1.0]) if score is None else score
    return PartialCounts(1, committed, steps, 1, value)


def agreed(generator: random.Random, skip: SkipConfig) -> float:
    """Agreement of an output of two to seven tokens with the dense one; 1 for dense itself."""
    dense = generator.choices(range(3), k=5)
    kept = dense[: generator.randint(0, 5)]
    return agreement(dense, kept + generator.choices(range(3), k=2) if skip.units else dense)


@dataclass(frozen=True)
class Problem:
    """Items of every skip set over blocks 1..n, and a search among them."""

    n: int
    beam: int
    depth: int
    epsilon: float
    num_items: int
    part_size: int
    kind: str
    seed: int
    is_dense_best: bool = False
    num_workers: int = 1
    failing: frozenset[int] = frozenset()
    agrees: bool = False
    """Whether the metric of an item is its agreement with the dense output."""

    def items(self, skip: SkipConfig) -> list[PartialCounts]:
        generator = random.Random(f"{self.seed}/{skip}")
        # Whole sets are often alike in all items: certain early, and often tied.
        steps = generator.choice([None, 2, 3, 4, 5, 6])
        score = generator.choice([None, None, 0.0, 0.25, 0.5, 0.75, 1.0])
        if not skip.units and self.is_dense_best:
            steps, score = 2, 1.0
        if self.agrees:
            return [item(generator, steps, agreed(generator, skip)) for _ in range(self.num_items)]
        return [item(generator, steps, score) for _ in range(self.num_items)]

    def parts(self, skip: SkipConfig) -> list[PartialCounts]:
        items, size = self.items(skip), self.part_size
        chunks = (items[start : start + size] for start in range(0, len(items), size))
        return [sum(chunk, PartialCounts()) for chunk in chunks]

    def total(self, skip: SkipConfig) -> PartialCounts:
        """Sums in the order of the items, as a whole evaluation has them."""
        return sum(self.items(skip), PartialCounts())

    def is_failing(self, skip: SkipConfig) -> bool:
        return len(skip.units) == 1 and skip.units[0].layer in self.failing

    @property
    def objective(self) -> Objective:
        slack = self.epsilon
        if self.kind == "acceptance":
            return AcceptanceGain(Tolerances(acceptance=slack))
        if self.kind == "metric":
            return MetricGain(Tolerances(metric=slack))
        return BothGains(Tolerances(slack, slack))

    def search(self, asking: str = "model") -> TssSearch:
        return TssSearch(
            [SkipUnit(layer) for layer in range(1, self.n + 1)],
            beam=self.beam,
            depth=self.depth,
            objective=self.objective,
            asking=asking,  # type: ignore[arg-type]  # one of two words
        )


problems = st.builds(
    Problem,
    n=st.integers(1, 7),
    beam=st.integers(1, 4),
    depth=st.integers(1, 3),
    epsilon=st.sampled_from([-2.0, -0.6, -0.3, -0.05, 0.0, 0.1]),
    num_items=st.integers(2, 6),
    part_size=st.integers(1, 3),
    kind=st.sampled_from(["both", "both", "acceptance", "metric"]),
    seed=st.integers(0, 100_000),
    is_dense_best=st.booleans(),
    num_workers=st.integers(1, 4),
    failing=st.frozensets(st.integers(1, 7), max_size=1),
    agrees=st.booleans(),
)


def whole(problem: Problem) -> SearchOutcome:
    search = problem.search()
    while not search.is_finished:
        for skip in search.pending():
            total = problem.total(skip)
            is_failing = problem.is_failing(skip)
            search.tell(skip, Failure("broken") if is_failing else total.score)
    return search.outcome()


def bounded(
    problem: Problem,
    asking: str = "promise",
    order: random.Random | None = None,
    begun: dict[SkipConfig, int] | None = None,
) -> tuple[SearchOutcome, int]:
    """Search in parts, as many under way as there are workers; return items decoded, too.

    Args:
        problem: What is searched.
        asking: Order in which sets are asked for.
        order: Which of the parts under way ends next.
        begun: Receives the parts begun of every set; those under way in the end are counted.
    """
    search, order = problem.search(asking), order or random.Random(problem.seed)
    schedule = PartSchedule(-(-problem.num_items // problem.part_size))
    counts: dict[SkipConfig, PartialCounts] = {}
    running: list[tuple[SkipConfig, int]] = []
    num_decoded = 0
    while not search.is_finished:
        while len(running) < problem.num_workers:
            skip = schedule.next(search.pending())
            if skip is None:
                break
            running.append(schedule.begin(skip))
            if begun is not None:
                begun[skip] = schedule.num_begun(skip)
        part = running.pop(order.randrange(len(running)))
        skip, is_last = part[0], schedule.end(part)
        counts[skip] = counts.get(skip, PartialCounts()) + problem.parts(skip)[part[1]]
        num_decoded += problem.parts(skip)[part[1]].num_items
        if skip not in search.pending():
            continue
        if problem.is_failing(skip) and part[1] == 0:
            search.tell(skip, Failure("broken"))
        elif is_last:
            search.tell(skip, problem.total(skip).score)
        else:
            limits = score_bounds(counts[skip], problem.num_items, LIMITS, metric_name="metric")
            search.narrow(skip, limits)
    return search.outcome(), num_decoded


def found(outcome: SearchOutcome, depth: int) -> object:
    """All that must not depend on what was dropped; the last level extends nothing."""
    shown = best_sparse(outcome)
    return (
        outcome.answer.skip,
        {member.skip: (member.score, member.level) for member in outcome.front},
        [level.frontier for level in outcome.levels if level.number < depth],
        outcome.stop_reason,
        # What is compared with dense on held-out items where dense is the answer.
        None if outcome.answer.skip.units or shown is None else shown.skip,
    )


@settings(max_examples=400, deadline=None)
@given(problems, st.sampled_from(["model", "promise"]))
def test_dropping_changes_nothing(problem: Problem, asking: str) -> None:
    full = whole(problem)
    part, num_decoded = bounded(problem, asking)
    assert found(part, problem.depth) == found(full, problem.depth)
    assert num_decoded <= problem.num_items * (1 + full.evaluated + len(full.failed))
    dropped = {skip for level in part.levels for skip, _ in level.dropped}
    assert not dropped & {member.skip for member in part.members}
    assert {skip for level in full.levels for skip in _listed(level)} == {
        skip for level in part.levels for skip in _listed(level)
    }


def _listed(level: tss.Level) -> set[SkipConfig]:
    return {
        *(member.skip for member in level.members),
        *(skip for skip, _ in level.failed),
        *(skip for skip, _ in level.dropped),
    }


@settings(max_examples=150, deadline=None)
@given(problems, st.randoms(use_true_random=False))
def test_a_second_run_needs_no_part_that_the_first_did_not(
    problem: Problem, order: random.Random
) -> None:
    """Sets that the first run finished are told at once, the others part by part."""
    begun: dict[SkipConfig, int] = {}
    first, _ = bounded(problem, order=order, begun=begun)
    dropped = {skip for skip, _ in first.dropped}
    search = problem.search("promise")
    known: dict[SkipConfig, list[PartialCounts]] = {}
    while not search.is_finished:
        pending = search.pending()
        finished = [skip for skip in pending if skip not in dropped]
        for skip in finished:
            total = problem.total(skip)
            search.tell(skip, Failure("broken") if problem.is_failing(skip) else total.score)
        for skip in [] if finished else pending:
            parts = known.setdefault(skip, [])
            assert len(parts) < begun[skip]
            parts.append(problem.parts(skip)[len(parts)])
            counts = sum(parts, PartialCounts())
            if skip not in search.pending():
                continue
            if counts.num_items == problem.num_items:
                search.tell(skip, problem.total(skip).score)
            else:
                limits = score_bounds(counts, problem.num_items, LIMITS, metric_name="metric")
                search.narrow(skip, limits)
    assert found(search.outcome(), problem.depth) == found(first, problem.depth)


def _naive(best: Ranked, finished: Finished) -> bool:
    """The wrong rule: the place of S* among the members that happen to be finished."""
    if finished.num_places is None:
        return is_superfluous(best, finished)
    place = order_level([*finished.members, best]).index(best)
    beyond = replace(finished, num_places=None)
    return place >= finished.num_places and is_superfluous(best, beyond)


def _never(member: Ranked, finished: Finished) -> bool:
    """Another wrong rule: whatever is not extended is not needed, wherever the front is."""
    del member
    return finished.num_places is not None and len(finished.members) >= 2 * finished.num_places


@pytest.mark.parametrize("rule", [_naive, _never])
def test_the_generator_catches_rules_that_are_not_exact(
    rule: Callable[[Ranked, Finished], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the problems above tell a wrong rule from the right one."""
    generator = random.Random(7)
    sampled = [
        Problem(
            n=7,
            beam=2,
            depth=2,
            epsilon=generator.choice([-2.0, -0.6, -0.3]),
            num_items=generator.randint(2, 6),
            part_size=generator.randint(1, 3),
            kind="both",
            seed=seed,
            is_dense_best=True,
            num_workers=generator.randint(1, 4),
        )
        for seed in range(600)
    ]
    assert all(found(bounded(one)[0], 2) == found(whole(one), 2) for one in sampled[:100])
    monkeypatch.setattr(tss, "is_superfluous", rule)
    assert any(found(bounded(one)[0], 2) != found(whole(one), 2) for one in sampled)


def test_sets_are_dropped_at_all() -> None:
    """Metric alone, dense and three sets perfect, three useless: these stop after one item.

    One of three items right is at most 2/3 of dense, below the tolerance of -5 % once the first
    is wrong.
    """
    perfect = [PartialCounts(1, 6, 3, 1, 1.0)] * 3
    useless = [PartialCounts(1, 6, 3, 1, 0.0)] * 3
    units = [SkipUnit(layer) for layer in range(1, 7)]
    search = TssSearch(units, beam=2, depth=2, objective=MetricGain(Tolerances(metric=-0.05)))
    search.tell(SkipConfig(), sum(perfect, PartialCounts()).score)
    for unit in units[:3]:
        search.tell(SkipConfig.of([unit]), sum(perfect, PartialCounts()).score)
    for unit in units[3:]:
        limits = score_bounds(useless[0], 3, LIMITS, metric_name="metric")
        search.narrow(SkipConfig.of([unit]), limits)
    assert {str(skip) for skip in search.dropped} == {"4", "5", "6"}
    assert search.level == 2
    assert [str(skip) for skip in search.pending()] == [
        "1,2", "1,3", "1,4", "1,5", "1,6", "2,3", "2,4", "2,5", "2,6",
    ]  # fmt: skip


def _completions(limits: ItemLimits) -> list[tuple[int, int]]:
    """Every (tokens, steps) that one item can take."""
    most, per_step = limits.tokens_in_steps, limits.tokens_per_step
    return [
        (tokens, steps)
        for tokens in range(most + 1)
        for steps in range(-(-tokens // per_step), tokens + 1)
    ]


@pytest.mark.parametrize("max_new_tokens", [1, 2, 4, 5])
@pytest.mark.parametrize("max_path", [0, 1, 2, None])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_acceptance_bounds_are_the_extremes_of_all_that_can_happen(
    max_new_tokens: int, max_path: int | None, left: int
) -> None:
    limits = ItemLimits(max_new_tokens, max_path)
    options = _completions(limits)
    for tokens, steps in options:
        counts = PartialCounts(1, tokens, steps, 1, 0.5)
        reached = []
        for rest in itertools.product(options, repeat=left):
            all_tokens = tokens + sum(t for t, _ in rest)
            all_steps = steps + sum(s for _, s in rest)
            reached.append(all_tokens / all_steps if all_steps else 1.0)
        got = score_bounds(counts, 1 + left, limits, metric_name="metric")
        assert got.low.acceptance == min(reached)
        assert got.high.acceptance == max(reached)
        assert got.low.metric == pytest.approx(0.5 / (1 + left))
        assert got.high.metric == pytest.approx((0.5 + left) / (1 + left))


def test_bounds_without_a_metric_have_none() -> None:
    got = score_bounds(PartialCounts(1, 6, 3), 2, LIMITS, metric_name=None)
    assert (got.low.metric, got.high.metric) == (None, None)
    # Six tokens in three steps; six more in two steps of three, or in six of one.
    assert (got.low.acceptance, got.high.acceptance) == (12 / 9, 12 / 5)
    assert got.text == "after 1 of 2 items, at most acceptance 2.400"

"""Invariants that hold for every strategy, on random tables."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.config.search import STRATEGIES, SearchConfig, StrategyName
from specdec_core.search.outcome import Failure, Loss, Result, Score, SearchOutcome
from specdec_core.search.space import evaluation_bound
from specdec_core.search.step_model import StepTimeModel
from specdec_core.search.strategies import make_strategy
from specdec_core.search.strategy import Strategy
from specdec_core.skip import SkipConfig, SkipUnit

NUM_LAYERS = 8
MODEL = StepTimeModel((1,), (1.0,), (1.0,) * NUM_LAYERS, (2.0,) * NUM_LAYERS, 10.0)
BEAMS = ("tss", "accept-only", "metric-only", "throughput")


@dataclass(frozen=True)
class Problem:
    """A complete table over blocks 1..n, with few distinct values so that ties are common."""

    n: int
    beam: int
    depth: int
    tolerance: float
    seed: int
    failing: frozenset[int]

    def result(self, kind: str, skip: SkipConfig) -> Result:
        generator = random.Random(f"{self.seed}/{kind}/{skip}")
        if len(skip) == 1 and skip.units[0].layer in self.failing:
            return Failure("poisoned")
        if kind == "loss":
            return Loss(generator.choice([2.0, 2.5, 3.0]))
        return Score(generator.choice([1.6, 1.9, 2.0, 2.4]), generator.randrange(1, 9) / 10)

    def strategy(self, name: StrategyName, tolerance: float | None = None) -> Strategy:
        config = SearchConfig(
            domain="qa",
            strategy=name,
            beam=self.beam,
            depth=self.depth,
            tolerance=self.tolerance if tolerance is None else tolerance,
        )
        units = [SkipUnit(layer) for layer in range(1, self.n + 1)]
        return make_strategy(config, units, num_layers=NUM_LAYERS, step_model=MODEL)


problems = st.builds(
    Problem,
    n=st.integers(1, 6),
    beam=st.integers(1, 3),
    depth=st.integers(1, 4),
    tolerance=st.sampled_from([-1.0, -0.2, -0.05, 0.0, 0.05]),
    seed=st.integers(0, 10_000),
    failing=st.frozensets(st.integers(1, 6), max_size=2),
)
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def drive(
    problem: Problem,
    name: StrategyName,
    workers: int = 1,
    order: random.Random | None = None,
    tolerance: float | None = None,
) -> tuple[SearchOutcome, dict[tuple[str, SkipConfig], Result]]:
    """Work off what is pending with some workers, each finished one drawn at random."""
    search = problem.strategy(name, tolerance)
    at_work: list[tuple[str, SkipConfig]] = []
    told: dict[tuple[str, SkipConfig], Result] = {}
    while not search.is_finished:
        for skip in search.pending():
            job = search.kind_of(skip), skip
            if job not in at_work and len(at_work) < workers:
                at_work.append(job)
        kind, skip = at_work.pop(order.randrange(len(at_work)) if order else 0)
        assert (kind, skip) not in told
        told[kind, skip] = problem.result(kind, skip)
        search.tell(skip, told[kind, skip])
    assert at_work == []  # whatever was pending was needed
    return search.outcome(), told


@every_strategy
@settings(max_examples=25, deadline=None)
@given(problem=problems, order=st.randoms(use_true_random=False))
def test_one_and_four_workers_find_the_same(
    name: StrategyName, problem: Problem, order: random.Random
) -> None:
    assert drive(problem, name, 4, order) == drive(problem, name)


@every_strategy
@settings(max_examples=25, deadline=None)
@given(problem=problems)
def test_a_warm_memo_answers_everything(name: StrategyName, problem: Problem) -> None:
    first, memo = drive(problem, name)
    search = problem.strategy(name)
    while not search.is_finished:
        for skip in search.pending():
            search.tell(skip, memo[search.kind_of(skip), skip])
    assert search.outcome() == first


@every_strategy
@settings(max_examples=25, deadline=None)
@given(problem=problems)
def test_the_answer_is_feasible_or_dense_within_the_budget(
    name: StrategyName, problem: Problem
) -> None:
    outcome, told = drive(problem, name)
    assert outcome.answer.is_feasible or not outcome.answer.skip.units
    assert len(outcome.answer.skip) <= problem.depth
    assert ("score", outcome.answer.skip) in told
    assert outcome.evaluated == sum(
        not isinstance(result, Failure) for (_, skip), result in told.items() if skip.units
    )
    if name in BEAMS:
        assert outcome.answer.gain >= 0.0
        assert len(told) - 1 <= evaluation_bound(problem.n, problem.beam, problem.depth)


@pytest.mark.parametrize("name", BEAMS)
@settings(max_examples=25, deadline=None)
@given(problem=problems)
def test_without_tolerance_a_beam_answers_with_the_best_it_saw(
    name: StrategyName, problem: Problem
) -> None:
    outcome, _ = drive(problem, name, tolerance=-1.0)
    # -100 % is met by every score there is.
    assert all(member.is_feasible for member in outcome.members)
    assert outcome.answer.gain == max([0.0, *(member.gain for member in outcome.members)])


@pytest.mark.parametrize("name", BEAMS)
@settings(max_examples=25, deadline=None)
@given(problem=problems, slack=st.sampled_from([0.05, 0.2, 0.5]))
def test_a_looser_tolerance_never_lowers_the_objective_on_fixed_sets(
    name: StrategyName, problem: Problem, slack: float
) -> None:
    flat = Problem(**{**problem.__dict__, "depth": 1})
    strict, _ = drive(flat, name)
    loose, _ = drive(flat, name, tolerance=max(-1.0, flat.tolerance - slack))
    assert loose.answer.gain >= strict.answer.gain


@every_strategy
@settings(max_examples=25, deadline=None)
@given(problem=problems)
def test_what_a_level_keeps_extends_what_the_one_before_kept(
    name: StrategyName, problem: Problem
) -> None:
    outcome, _ = drive(problem, name)
    if name == "sleb":
        kept = [[level.losses[0][0]] for level in outcome.levels if level.losses]
    else:
        kept = [[m.skip for m in level.frontier] for level in outcome.levels]
    for earlier, later in itertools.pairwise(kept):
        for skip in later:
            mine = set(skip.units)
            assert any(len(mine - set(p.units)) == 1 and set(p.units) < mine for p in earlier)


@settings(max_examples=40, deadline=None)
@given(problem=problems)
def test_sleb_agrees_with_a_plain_loop(problem: Problem) -> None:
    outcome, _ = drive(problem, "sleb")
    removed: tuple[int, ...] = ()
    for _ in range(min(problem.depth, problem.n)):
        options = [
            (result.nats, tuple(sorted((*removed, layer))))
            for layer in range(1, problem.n + 1)
            if layer not in removed
            and isinstance(
                result := problem.result(
                    "loss", SkipConfig.of([SkipUnit(one) for one in (*removed, layer)])
                ),
                Loss,
            )
        ]
        if not options:
            break
        removed = min(options)[1]
    path = [str(level.losses[0][0]) for level in outcome.levels if level.losses]
    assert not removed or path[-1] == ",".join(map(str, removed))


@settings(max_examples=40, deadline=None)
@given(problem=problems)
def test_gm_skip_agrees_with_a_plain_loop(problem: Problem) -> None:
    outcome, _ = drive(problem, "gm-skip")
    dense = problem.result("score", SkipConfig())
    assert isinstance(dense, Score)
    assert dense.metric is not None
    removed, value = SkipConfig(), 0.0
    for layer in range(problem.n, 0, -1):
        if len(removed) == problem.depth:
            break
        longer = SkipConfig.of([*removed.units, SkipUnit(layer)])
        result = problem.result("score", longer)
        if isinstance(result, Failure):
            continue
        assert isinstance(result, Score)
        assert result.metric is not None
        found = round(round(result.metric / dense.metric - 1, 9) + len(longer) / NUM_LAYERS, 9)
        if found > value:
            removed, value = longer, found
    assert outcome.answer.skip == removed

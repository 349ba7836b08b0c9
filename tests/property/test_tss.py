"""Invariants of the breadth search on random tables, against a slow reference of its own."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.search.objectives import BothGains, Tolerances
from specdec_core.search.outcome import Failure, Score, SearchOutcome
from specdec_core.search.ranking import dominates
from specdec_core.search.space import evaluation_bound
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipConfig, SkipUnit

Sets = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A complete table over `n` whole blocks (1..n) and the parameters of a search."""

    n: int
    beam: int
    depth: int
    epsilon: float
    seed: int
    failing: frozenset[int]

    def score(self, layers: Sets) -> Score | Failure:
        generator = random.Random(f"{self.seed}/{layers}")
        # Few distinct values, so that ties are common.
        score = Score(generator.choice([1.6, 1.9, 2.0, 2.1, 2.4]), generator.randrange(1, 9) / 10)
        is_failing = len(layers) == 1 and layers[0] in self.failing
        return Failure("poisoned") if is_failing else score

    def search(self, epsilon: float | None = None) -> TssSearch:
        slack = self.epsilon if epsilon is None else epsilon
        return TssSearch(
            [SkipUnit(layer) for layer in range(1, self.n + 1)],
            beam=self.beam,
            depth=self.depth,
            objective=BothGains(Tolerances(slack, slack)),
        )


problems = st.builds(
    Problem,
    n=st.integers(1, 6),
    beam=st.integers(1, 4),
    depth=st.integers(1, 4),
    epsilon=st.sampled_from([-1.0, -0.2, -0.05, 0.0, 0.05, 0.3]),
    seed=st.integers(0, 10_000),
    failing=st.frozensets(st.integers(1, 6), max_size=2),
)


def layers_of(skip: SkipConfig) -> Sets:
    return tuple(unit.layer for unit in skip.units)


def drive(
    problem: Problem, order: random.Random | None = None, epsilon: float | None = None
) -> tuple[SearchOutcome, list[Sets]]:
    """Run a search to its end, one result at a time, in pending or in random order."""
    search, asked = problem.search(epsilon), []
    while not search.is_finished:
        pending = list(search.pending())
        skip = order.choice(pending) if order else pending[0]
        asked.append(layers_of(skip))
        search.tell(skip, problem.score(layers_of(skip)))
    return search.outcome(), asked


def reference(problem: Problem) -> tuple[Sets, set[Sets], set[Sets]]:
    """The same search written plainly over tuples: answer, front, evaluated sets."""
    dense = problem.score(())
    assert isinstance(dense, Score)

    def gains(layers: Sets) -> tuple[float, float] | None:
        score = problem.score(layers)
        if isinstance(score, Failure):
            return None
        assert score.metric is not None
        assert dense.metric is not None
        return (
            round(score.acceptance / dense.acceptance - 1, 9),
            round(score.metric / dense.metric - 1, 9),
        )

    def shortfall(gain: tuple[float, float]) -> float:
        return round(sum(max(0.0, problem.epsilon - one) for one in gain), 9)

    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] >= b[0] and a[1] >= b[1] and a != b

    pool: dict[Sets, tuple[float, float]] = {(): (0.0, 0.0)}
    evaluated: set[Sets] = set()
    level = {(layer,) for layer in range(1, problem.n + 1)}
    for number in range(1, problem.depth + 1):
        known = {s: gain for s in level if (gain := gains(s)) is not None}
        evaluated |= level
        good = {s: gain for s, gain in known.items() if shortfall(gain) == 0}
        pool |= good
        ranks: dict[Sets, int] = {}
        while len(ranks) < len(good):
            left = {s: gain for s, gain in good.items() if s not in ranks}
            rank = 1 + max(ranks.values(), default=0)
            ranks |= {
                s: rank for s, g in left.items() if not any(beats(o, g) for o in left.values())
            }
        order = sorted(good, key=lambda s: (ranks[s], -round(sum(good[s]), 9), s))
        bad = [s for s in known if s not in good]
        order += sorted(bad, key=lambda s: (shortfall(known[s]), -round(sum(known[s]), 9), s))
        level = {
            tuple(sorted({*s, layer}))
            for s in order[: problem.beam]
            for layer in range(1, problem.n + 1)
            if layer not in s
        }
        if not level or number == problem.depth:
            break
        if not any(s in good or not any(beats(o, known[s]) for o in pool.values()) for s in known):
            break
    front = {s for s in pool if not any(beats(o, pool[s]) for o in pool.values())}
    answer = min(front, key=lambda s: (-round(sum(pool[s]), 9), -len(s), s))
    return answer, front, evaluated


@settings(max_examples=150, deadline=None)
@given(problems)
def test_agrees_with_the_plain_reference(problem: Problem) -> None:
    outcome, asked = drive(problem)
    answer, front, evaluated = reference(problem)
    assert layers_of(outcome.answer.skip) == answer
    assert {layers_of(member.skip) for member in outcome.front} == front
    assert set(asked) == evaluated | {()}
    assert len(asked) == len(set(asked))


@settings(max_examples=60, deadline=None)
@given(problems, st.randoms(use_true_random=False))
def test_the_order_of_telling_changes_nothing(problem: Problem, order: random.Random) -> None:
    assert drive(problem, order)[0] == drive(problem)[0]


@settings(max_examples=60, deadline=None)
@given(problems)
def test_a_warm_memo_needs_no_evaluation(problem: Problem) -> None:
    first, asked = drive(problem)
    memo = {layers: problem.score(layers) for layers in asked}
    search, computed = problem.search(), 0
    while not search.is_finished:
        for skip in search.pending():
            computed += layers_of(skip) not in memo
            search.tell(skip, memo[layers_of(skip)])
    assert computed == 0
    assert search.outcome() == first


@settings(max_examples=60, deadline=None)
@given(problems, st.sampled_from([0.05, 0.2, 0.5]))
def test_a_looser_tolerance_never_lowers_the_objective_on_fixed_sets(
    problem: Problem, slack: float
) -> None:
    """With one level the evaluated sets are the same whatever the tolerance."""
    flat = Problem(**{**problem.__dict__, "depth": 1})
    strict, _ = drive(flat)
    loose, _ = drive(flat, epsilon=flat.epsilon - slack)
    assert loose.answer.gain >= strict.answer.gain
    assert {m.skip for m in strict.pool} <= {m.skip for m in loose.pool}


@settings(max_examples=60, deadline=None)
@given(problems)
def test_every_frontier_member_extends_one_of_the_level_before(problem: Problem) -> None:
    outcome, _ = drive(problem)
    for earlier, later in itertools.pairwise(outcome.levels):
        parents = [set(member.skip.units) for member in earlier.frontier]
        for member in later.frontier:
            mine = set(member.skip.units)
            assert any(parent < mine and len(mine - parent) == 1 for parent in parents)


@settings(max_examples=60, deadline=None)
@given(problems)
def test_the_answer_is_feasible_or_dense_and_the_count_is_bounded(problem: Problem) -> None:
    outcome, asked = drive(problem)
    assert outcome.answer.is_feasible or not outcome.answer.skip.units
    assert outcome.answer.gain >= min(0.0, outcome.dense.gain)
    assert len(asked) - 1 <= evaluation_bound(problem.n, problem.beam, problem.depth)
    assert not any(dominates(other, member) for member in outcome.front for other in outcome.pool)


@settings(max_examples=60, deadline=None)
@given(problems)
def test_without_tolerance_the_answer_is_the_best_of_all_evaluated(problem: Problem) -> None:
    outcome, _ = drive(problem, epsilon=-1e9)
    best = max([0.0, *(member.gain for member in outcome.members)])
    assert outcome.answer.gain == best

"""When the evaluation of a skip set may be broken off without any effect on the search.

A set S of the level in progress is known by the best it can still become, S*: the score with the
largest acceptance and the largest metric that its bounds allow. All objectives, feasibility and
the violation are monotone in both, so that S is nowhere better than S*. Against S* stand finished
sets only, whose figures are final. S is superfluous if all of this is certain:

1. *It is not extended.* At least as many finished members of its level as the frontier has places
   precede it whatever it becomes: feasible ones if S* is not; among feasible ones those that
   dominate S*, or are nowhere worse than it and come first as a set; among infeasible ones those
   that come before S* by violation, summed gain and set. On the last level nothing is extended.
2. *It is not on the final front*: S* is infeasible, or a finished feasible set (or the dense
   target) dominates S*.
3. *It does not decide whether the search goes on*: this is the last level, or a finished member
   is worth expanding already (feasible, or dominated by nobody so far), or S surely is not.
4. *It is not the sparse set that is shown where dense wins*: a finished set precedes S* there.

Leaving out a set D of such members changes nothing. By 1 none of D is among the first B
of the full order. Places of infeasible members do not depend on others. Of feasible ones let r be
the least non-domination rank in D. Chains of dominators of members of rank < r hold
no member of D, so these keep their ranks, and none of rank >= r falls below r, as its first r - 1
dominators stay. If ranks < r hold B members, all is shown. Else each member of D of rank r is
preceded by B others only because some of them have its very objectives and rank and come first
as sets; the first of those is not in D itself, and dominates whatever the member of D
dominates. So nobody is lifted to rank r, and the order up to there is the old one without D.
By 2 the front is the same, as dominance is transitive and what dominates is never left out; with it
the answer. By 3 the reason to stop is the same: a member that is feasible, or that nobody
dominated before a feasible one appeared on its level, keeps the search going for good, and
what only D could have contributed is certain to be nothing.

Comparing S* with the order of the finished members alone would not do: a member that finishes later
can lift S to a better rank by dominating those above it.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_core.search.outcome import Ranked, half_count
from specdec_core.search.ranking import dominates


@dataclass(frozen=True, slots=True)
class Finished:
    """What is final while a level is in progress.

    Attributes:
        members: Its scored members.
        pool: The dense target and all feasible sets, of this level and those before.
        sparse: Scored sets of all levels.
        num_places: Members that the next level will extend; None on the last level.
    """

    members: Sequence[Ranked]
    pool: Sequence[Ranked]
    sparse: Sequence[Ranked]
    num_places: int | None


def is_superfluous(best: Ranked, finished: Finished) -> bool:
    """Return whether a set that can become `best` at most can be left out, see above."""
    return (
        _is_off_the_front(best, finished)
        and _is_not_extended(best, finished)
        and _has_no_say(best, finished)
        and _is_not_shown(best, finished)
    )


def is_worth_expanding(member: Ranked, pool: Sequence[Ranked]) -> bool:
    """Return whether `member` alone keeps the search from stopping early."""
    return member.is_feasible or not any(dominates(other, member) for other in pool)


def _is_not_extended(best: Ranked, finished: Finished) -> bool:
    if finished.num_places is None:
        return True
    ahead = sum(1 for member in finished.members if _precedes(member, best))
    return ahead >= finished.num_places


def _precedes(member: Ranked, best: Ranked) -> bool:
    if member.is_feasible != best.is_feasible:
        return member.is_feasible
    if not member.is_feasible:
        return _place(member) < _place(best)
    pairs = zip(member.objectives, best.objectives, strict=True)
    is_first = member.skip.sort_key < best.skip.sort_key
    return dominates(member, best) or (is_first and all(a >= b for a, b in pairs))


def _place(member: Ranked) -> tuple[float, float, tuple[tuple[int, int], ...]]:
    return member.violation, -member.gain, member.skip.sort_key


def _is_off_the_front(best: Ranked, finished: Finished) -> bool:
    return not best.is_feasible or any(dominates(other, best) for other in finished.pool)


def _has_no_say(best: Ranked, finished: Finished) -> bool:
    if finished.num_places is None or not is_worth_expanding(best, finished.pool):
        return True
    return any(is_worth_expanding(member, finished.pool) for member in finished.members)


def _is_not_shown(best: Ranked, finished: Finished) -> bool:
    return any(_shown(member) < _shown(best) for member in finished.sparse)


def _shown(member: Ranked) -> tuple[float, float, int, tuple[tuple[int, int], ...]]:
    """Order in which sparse sets stand for the search where dense is the answer."""
    size = half_count(member.skip) if member.is_feasible else 0
    return member.violation, -member.gain, -size, member.skip.sort_key

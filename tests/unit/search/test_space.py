"""Candidate units, the bound on evaluations, and the identity of the space."""

from __future__ import annotations

import pytest

from specdec_core.config.search import UnitChoice
from specdec_core.errors import ConfigError
from specdec_core.search.space import candidates, evaluation_bound, space_hash


@pytest.mark.parametrize(
    ("units", "protect", "expected"),
    [
        ("block", True, "1 2"),
        ("block", False, "0 1 2 3"),
        ("attention", True, "a1 a2"),
        ("mlp", True, "m1 m2"),
        ("halves", True, "a1 m1 a2 m2"),
        ("all", True, "1 a1 m1 2 a2 m2"),
    ],
)
def test_candidates_by_kind_and_protection(units: UnitChoice, protect: bool, expected: str) -> None:
    assert " ".join(map(str, candidates(units, 4, protect))) == expected


def test_a_model_too_shallow_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"2 layers leaves nothing to skip.*protect_ends=false"):
        candidates("block", 2, True)


@pytest.mark.parametrize(
    ("n", "beam", "depth", "bound"),
    [
        (4, 2, 3, 4 + (2 * 3 - 1) + 2 * 2),
        # By hand: n + B(n-1) - B(B-1)/2 + sum over k >= 3 of B(n-k+1).
        (32, 4, 4, 32 + 4 * 31 - 6 + 4 * 30 + 4 * 29),
        (31, 4, 4, 373),
        (30, 4, 4, 360),
        (30, 3, 5, 357),
        (30, 6, 3, 30 + 6 * 29 - 15 + 6 * 28),
        (5, 9, 1, 5),
    ],
)
def test_evaluation_bound(n: int, beam: int, depth: int, bound: int) -> None:
    assert evaluation_bound(n, beam, depth) == bound


def test_space_hash_ignores_order_and_sees_every_unit() -> None:
    units = candidates("block", 6, True)
    assert space_hash(units) == space_hash(units[::-1])
    assert space_hash(units) != space_hash(units[:-1])
    assert space_hash(units) != space_hash(candidates("attention", 6, True))

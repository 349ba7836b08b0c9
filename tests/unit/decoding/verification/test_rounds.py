"""The rules' arithmetic, enumerated: over all drafts the output has exactly the target's law.

`output_law` adds up what the rounds say; the drafts' own laws are enumerated in rational numbers.
The biased variants known from papers and releases are computed the same way and must not pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import pytest
import torch

from specdec_core.decoding.verification.rounds import (
    Round,
    chosen_rounds,
    draw_by_rounds,
    drawn_rounds,
)
from specdec_core.errors import ConfigError
from specdec_core.randomness import Noise

Law = tuple[Fraction, ...]


def fractions(*texts: str) -> Law:
    return tuple(map(Fraction, texts))


P = fractions("0.5", "0.3", "0.2")
Q = fractions("0.2", "0.5", "0.3")
P4 = fractions("0.4", "0.3", "0.2", "0.1")
Q4 = fractions("0.1", "0.2", "0.3", "0.4")
CHOSEN = fractions("0.5", "0.3", "0.15", "0.05")


def tensor(law: Sequence[Fraction]) -> torch.Tensor:
    return torch.tensor([float(value) for value in law], dtype=torch.float64)


def output_law(
    target: torch.Tensor,
    rounds: Iterable[Round],
    replace_rest: Callable[[torch.Tensor], torch.Tensor] = lambda rest: rest,
) -> torch.Tensor:
    """Return the law of the token that tests in these rounds, and the draw after them, give."""
    law = torch.zeros_like(target)
    reached, rest = 1.0, target
    for one in rounds:
        law[one.token] += reached * min(one.chance, 1.0)
        reached *= 1.0 - min(one.chance, 1.0)
        rest = one.rest.clone()
    rest = replace_rest(rest)
    return law + reached * rest / rest.sum()


def draws(
    q: Law, num: int, *, with_replacement: bool
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Yield every draw of `num` tokens in order, with its probability."""
    for tokens in itertools.product(range(len(q)), repeat=num):
        chance, left = Fraction(1), Fraction(1)
        for place, token in enumerate(tokens):
            if not with_replacement and token in tokens[:place]:
                chance = Fraction(0)
                break
            chance *= q[token] / left
            left -= Fraction(0) if with_replacement else q[token]
        if chance:
            yield tokens, chance


def mixed_law(p: Law, q: Law, num: int, *, drawn: bool, told: bool) -> tuple[torch.Tensor, float]:
    """Return the output's law and the chance that a child is accepted, over all draws.

    Args:
        p: The target.
        q: The draft.
        num: Children.
        drawn: Whether they were drawn with replacement.
        told: Whether the rule is told so.
    """
    law, accepted = torch.zeros(len(p), dtype=torch.float64), 0.0
    for tokens, chance in draws(q, num, with_replacement=drawn):
        rounds = [
            Round(one.token, min(one.chance, 1.0), one.rest.clone())
            for one in drawn_rounds(tensor(p), tensor(q), tokens, with_replacement=told)
        ]
        law += float(chance) * output_law(tensor(p), rounds)
        rejected = 1.0
        for one in rounds:
            rejected *= 1.0 - one.chance
        accepted += float(chance) * (1.0 - rejected)
    return law, accepted


@pytest.mark.parametrize(
    ("num", "with_replacement", "acceptance"),
    [
        (1, True, Fraction("0.7")),
        (1, False, Fraction("0.7")),
        (2, True, Fraction("0.76")),
        (2, False, Fraction(283, 350)),
        (3, True, Fraction("0.808")),
        (3, False, Fraction(1)),
    ],
)
def test_drawn_children_give_the_targets_law(num, with_replacement, acceptance):
    law, accepted = mixed_law(P, Q, num, drawn=with_replacement, told=with_replacement)
    torch.testing.assert_close(law, tensor(P), rtol=0, atol=1e-14)
    assert accepted == pytest.approx(float(acceptance), abs=1e-14)


@pytest.mark.parametrize("with_replacement", [True, False])
@pytest.mark.parametrize("num", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("p", "q"),
    [
        (P4, Q4),
        (Q4, P4),
        (P4, P4),
        (fractions("0", "0", "1", "0"), Q4),
        (P4, fractions("0", "0", "1", "0")),
        (fractions("0.5", "0.5", "0", "0"), fractions("0", "0", "0.5", "0.5")),
        (fractions("0.5", "0.5", "0", "0"), fractions("0", "0.5", "0.5", "0")),
    ],
)
def test_every_pair_of_laws_comes_out_right(p, q, num, with_replacement):
    if not with_replacement:
        num = min(num, sum(value > 0 for value in q))
    law, _ = mixed_law(p, q, num, drawn=with_replacement, told=with_replacement)
    torch.testing.assert_close(law, tensor(p), rtol=0, atol=1e-13)


def test_one_drawn_token_by_hand():
    (first,) = drawn_rounds(tensor(P), tensor(Q), [0], with_replacement=False)
    (second,) = drawn_rounds(tensor(P), tensor(Q), [1], with_replacement=False)
    (third,) = drawn_rounds(tensor(P), tensor(Q), [2], with_replacement=False)
    assert min(first.chance, 1.0) == 1.0
    assert second.chance == pytest.approx(0.6)
    assert third.chance == pytest.approx(2 / 3)
    for one in (first, second, third):
        assert one.rest.tolist() == pytest.approx([1.0, 0.0, 0.0])


def test_two_levels_of_drawn_children_give_the_joint_law():
    """Root with two children, each with one of its own; every token has its own laws below it."""
    p_below = [P, Q, fractions("0.1", "0.1", "0.8")]
    q_below = [Q, fractions("0.1", "0.6", "0.3"), P]
    joint = torch.zeros(3, 3, dtype=torch.float64)
    for children, chance in draws(Q, 2, with_replacement=False):
        rounds = drawn_rounds(tensor(P), tensor(Q), children, with_replacement=False)
        first = output_law(tensor(P), rounds)
        for token in range(3):
            # Below a token that was not drafted the next step begins with the target alone.
            second = tensor(p_below[token])
            if token in children:
                second = mixed_law(p_below[token], q_below[token], 1, drawn=True, told=True)[0]
            joint[token] += float(chance) * first[token] * second
    expected = torch.stack([float(P[x]) * tensor(p_below[x]) for x in range(3)])
    torch.testing.assert_close(joint, expected, rtol=0, atol=1e-14)


def test_drawing_again_from_the_target_after_a_rejection_is_biased():
    law = torch.zeros(3, dtype=torch.float64)
    for tokens, chance in draws(Q, 1, with_replacement=True):
        rounds = drawn_rounds(tensor(P), tensor(Q), tokens, with_replacement=True)
        law += float(chance) * output_law(tensor(P), rounds, lambda rest: tensor(P))
    assert law.tolist() == pytest.approx([0.35, 0.39, 0.26])


def test_a_stale_draft_distribution_is_biased():
    law, _ = mixed_law(P4, Q4, 2, drawn=False, told=True)
    assert [round(value, 4) for value in law.tolist()] == [0.3566, 0.3434, 0.2, 0.1]


def test_likeliest_children_treated_as_draws_are_biased():
    rounds = drawn_rounds(tensor(P4), tensor(Q4), [3, 2], with_replacement=False)
    assert output_law(tensor(P4), rounds).tolist() == pytest.approx([0.75, 0, 0, 0.25])
    rounds = drawn_rounds(tensor(P), tensor(Q), [1], with_replacement=False)
    assert output_law(tensor(P), rounds).tolist() == pytest.approx([0.4, 0.6, 0])
    # As chosen tokens they are exact.
    for p, tokens in ((P4, [3, 2]), (P, [1])):
        law = output_law(tensor(p), chosen_rounds(tensor(p), tokens))
        torch.testing.assert_close(law, tensor(p), rtol=0, atol=1e-15)


def test_pruning_drawn_children_by_score_is_biased_unless_they_count_as_chosen():
    as_drawn, as_chosen = (torch.zeros(3, dtype=torch.float64) for _ in range(2))
    for tokens, chance in draws(Q, 2, with_replacement=False):
        kept = max(tokens, key=lambda token: Q[token])
        rounds = drawn_rounds(tensor(P), tensor(Q), [kept], with_replacement=False)
        as_drawn += float(chance) * output_law(tensor(P), rounds)
        as_chosen += float(chance) * output_law(tensor(P), chosen_rounds(tensor(P), [kept]))
    assert [round(value, 4) for value in as_drawn.tolist()] == [0.3893, 0.5036, 0.1071]
    torch.testing.assert_close(as_chosen, tensor(P), rtol=0, atol=1e-15)


def test_chosen_children_by_hand():
    rounds = [
        Round(one.token, one.chance, one.rest.clone())
        for one in chosen_rounds(tensor(CHOSEN), [1, 3])
    ]
    assert [one.token for one in rounds] == [1, 3]
    assert [one.chance for one in rounds] == pytest.approx([0.3, 0.05 / 0.7])
    assert (1 - rounds[0].chance) * (1 - rounds[1].chance) == pytest.approx(0.65)
    rest = rounds[1].rest / rounds[1].rest.sum()
    assert rest.tolist() == pytest.approx([0.5 / 0.65, 0, 0.15 / 0.65, 0])


def test_chosen_children_are_exact_in_every_number_and_order():
    target = tensor(CHOSEN)
    for num in range(5):
        for tokens in itertools.permutations(range(4), num):
            law = output_law(target, chosen_rounds(target, tokens))
            torch.testing.assert_close(law, target, rtol=0, atol=1e-14)
    assert target.tolist() == tensor(CHOSEN).tolist()


def test_variants_of_the_rule_for_chosen_children_are_biased():
    target = tensor(CHOSEN)

    def law(replace_rest):
        return output_law(target, chosen_rounds(target, [1, 3]), replace_rest).tolist()

    def most_likely(rest):
        return torch.nn.functional.one_hot(rest.argmax(), 4).double()

    assert law(most_likely) == pytest.approx([0.65, 0.3, 0, 0.05])
    assert law(lambda rest: target) == pytest.approx([0.325, 0.495, 0.0975, 0.0825])
    # Renormalising over the children alone makes the last one certain.
    certain = [Round(1, 0.3, target), Round(3, 1.0, target)]
    assert output_law(target, certain).tolist() == pytest.approx([0, 0.3, 0, 0.7])


def test_children_with_all_the_mass_leave_it_to_the_likeliest():
    target = torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64)
    *_, last = chosen_rounds(target, [0, 1, 2])
    assert last.rest.tolist() == [0, 1, 0]
    assert last.chance == 0.0


def test_equal_laws_reject_by_rounding_only_and_then_draw_from_the_target():
    target = tensor(P)
    (only,) = drawn_rounds(target, target * (1 + 1e-16), [1], with_replacement=True)
    assert only.chance == pytest.approx(1.0)
    assert only.rest.tolist() == target.tolist()


def test_a_number_of_zero_accepts_nothing_impossible():
    class Lowest(Noise):
        def uniform(self, purpose, position, index=0):
            return 0.0

    target = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert draw_by_rounds(target, chosen_rounds(target, [0]), Lowest(0), 5) == 1
    uniform = torch.tensor([0.5, 0.5], dtype=torch.float64)
    rounds = drawn_rounds(target, uniform, [0], with_replacement=False)
    assert draw_by_rounds(target, rounds, Lowest(0), 5) == 1


def test_vocabularies_of_other_sizes_and_sums_that_are_not_one():
    target = tensor(P4)
    for draft in ([0.4, 0.6], [4.0, 6.0], [0.4, 0.6, 0, 0, 0, 0]):
        q = torch.tensor(draft, dtype=torch.float32)
        law = torch.zeros(4, dtype=torch.float64)
        for token, chance in ((0, 0.4), (1, 0.6)):
            rounds = drawn_rounds(target, q, [token], with_replacement=True)
            law += chance * output_law(target, rounds)
        torch.testing.assert_close(law, target, rtol=0, atol=1e-6)


def test_an_impossible_draw_is_refused():
    with pytest.raises(ConfigError, match=r"token 1 .* exactly the distribution"):
        next(drawn_rounds(tensor(P), tensor(fractions("1", "0", "0")), [1], with_replacement=True))

"""Chi-square tests of sampled outputs against the exact law, and controls that must fail."""

from __future__ import annotations

import pytest
import torch

from specdec_core.bench.distribution import DistributionTest, distribution_test
from specdec_core.config.sampling import Sampling, parse_sampling
from specdec_core.decoding import Proposal, generate
from specdec_core.decoding.proposal import SampledChildren
from specdec_core.decoding.sampling import draw_token, fit_vocabulary
from specdec_core.decoding.verification import Match, Rejection, TreeRows
from specdec_core.decoding.verification.rounds import draw_by_rounds, drawn_rounds
from specdec_core.randomness import Noise
from specdec_core.tree import TokenTree
from tests.doubles import GarbageDrafter, random_view, slow_greedy, slow_ranking
from tests.sampled_law import DrawingDrafter, counts_of, draw_outputs, exact_law, marginal

VOCAB_SIZE = 8
NUM_DRAWS = 1200
PROMPT = (3, 1)
TARGET = random_view(1, VOCAB_SIZE)
DRAFT = random_view(2, VOCAB_SIZE)


def narrow(context):
    """A draft model without the last two ids."""
    return fit_vocabulary(torch.tensor(DRAFT.logits_after(context)[:6]), VOCAB_SIZE).tolist()


def wide(context):
    """A draft model with two ids too many, likely ones."""
    row = torch.tensor([*DRAFT.logits_after(context), 3.0, 2.0])
    return fit_vocabulary(row, VOCAB_SIZE).tolist()


def likeliest(context):
    """Logits that leave two children no choice: the two best of the draft model."""
    logits = DRAFT.logits_after(context)
    best = slow_ranking(logits, 2)
    return [40.0 - 30 * best.index(t) if t in best else -1e9 for t in range(VOCAB_SIZE)]


class ClaimsDraws(DrawingDrafter):
    """Proposes the likeliest tokens and says that they were drawn from the draft model."""

    def __init__(self):
        super().__init__(likeliest, [2, 2])

    def propose(self, sequence, budget):
        made = super().propose(sequence, budget)
        sampled = {}
        for node, drawn in made.sampled.items():
            path, at = [], node
            while at:
                path.insert(0, made.candidates.tokens[at])
                at = made.candidates.parents[at]
            law = torch.tensor(DRAFT.logits_after([*sequence, *path])).softmax(-1)
            sampled[node] = SampledChildren(drawn.order, law)
        return Proposal(made.candidates, sampled=sampled)


def checks_of(make, text: str) -> list[DistributionTest]:
    """Return tests of the first token, the second, and the joint law of first and later pairs."""
    sampling = parse_sampling(text)
    outputs = draw_outputs(TARGET, PROMPT, make, sampling, num_tokens=4, num_draws=NUM_DRAWS)
    law = exact_law(TARGET, PROMPT, sampling, 4)
    places = (slice(1), slice(1, 2), slice(2), slice(1, 3), slice(2, 4))
    return [distribution_test(counts_of(outputs, own), marginal(law, own)) for own in places]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: DrawingDrafter(DRAFT.logits_after, [1, 1, 1]), "temperature=1"),
        (lambda: DrawingDrafter(DRAFT.logits_after, [2, 2]), "temperature=1"),
        (
            lambda: DrawingDrafter(DRAFT.logits_after, [3, 1], with_replacement=True),
            "temperature=1",
        ),
        (lambda: DrawingDrafter(narrow, [2, 1]), "temperature=0.8,top_p=0.9"),
        (lambda: DrawingDrafter(wide, [1, 1]), "temperature=1.2,repetition_penalty=1.4"),
        (
            lambda: DrawingDrafter(
                TARGET.logits_after, [1, 1, 1], sampling=Sampling(temperature=1.5)
            ),
            "temperature=1.5",
        ),
        (lambda: DrawingDrafter(likeliest, [2, 2], are_told=False), "temperature=1"),
        (
            lambda: DrawingDrafter(DRAFT.logits_after, [2, 2], are_told=False),
            "temperature=1,verification=residual",
        ),
        (lambda: GarbageDrafter(5, VOCAB_SIZE), "temperature=1,top_k=5,verification=residual"),
        (lambda: GarbageDrafter(5, VOCAB_SIZE), "temperature=1,verification=rejection"),
    ],
    ids=[
        "chain",
        "tree",
        "tree-with-replacement",
        "narrow-vocabulary",
        "wide-vocabulary",
        "always-accepted",
        "likeliest-matched",
        "drawn-as-chosen",
        "garbage-residual",
        "garbage-rejection",
    ],
)
def test_lossless_rules_keep_the_targets_law(make, text):
    for found in checks_of(make, text):
        assert found.is_passed(), found


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (ClaimsDraws, "temperature=1"),
        (
            lambda: DrawingDrafter(likeliest, [2, 2], are_told=False),
            "temperature=1,verification=typical",
        ),
    ],
    ids=["likeliest-said-to-be-drawn", "typical"],
)
def test_a_biased_proposal_and_a_lossy_rule_are_found(make, text):
    # The first token comes from the prefill and is right in any case.
    first, second, *joint = checks_of(make, text)
    assert first.is_passed()
    assert not second.is_passed()
    assert not any(found.is_passed() for found in joint)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_greedy_target_ignores_how_drafts_were_made(temperature):
    own = Sampling(temperature=temperature)
    drafter = DrawingDrafter(TARGET.logits_after, [2, 2], sampling=own)
    (result,) = generate(TARGET, [PROMPT], [drafter], max_new_tokens=25, eos_ids=())
    assert list(result.token_ids) == slow_greedy(TARGET.logits_after, PROMPT, 25)


P = torch.tensor([0.3, 0.05, 0.2, 0.1, 0.05, 0.15, 0.1, 0.05], dtype=torch.float64)
Q = P.roll(3)


def one_draw(seed: int, *, is_broken: bool) -> int:
    """Return a token by rejection of one draft; broken, the likeliest instead of the last draw."""
    noise = Noise(4, seed)
    draft = draw_token(Q.log(), noise, "draft", 0)
    rounds = list(drawn_rounds(P, Q, [draft], with_replacement=True))
    if is_broken and not noise.uniform("accept", 1, 0) < rounds[0].chance:
        return int(rounds[0].rest.argmax())
    return draw_by_rounds(P, rounds, noise, 1)


def distances(*, is_broken: bool) -> tuple[float, float]:
    """Return the total variation of few and of 32 times as many draws from the law."""
    drawn = [one_draw(seed, is_broken=is_broken) for seed in range(12_800)]
    law = dict(enumerate(P.tolist()))
    # Few draws vary: the mean over 16 lots of 400.
    lots = [drawn[start : start + 400] for start in range(0, 6400, 400)]
    few = [distribution_test({t: lot.count(t) for t in law}, law).total_variation for lot in lots]
    many = distribution_test({token: drawn.count(token) for token in law}, law)
    assert many.is_passed() != is_broken
    return sum(few) / len(few), many.total_variation


def test_the_error_shrinks_with_the_square_root_of_the_number_of_draws():
    few, many = distances(is_broken=False)
    # 5.7 expected; the larger sample is one, so its error varies by a third.
    assert 3 < few / many < 14


def test_the_error_of_a_broken_rule_does_not_shrink():
    few, many = distances(is_broken=True)
    assert few / many < 1.5


def test_matching_a_drawn_token_is_exact_but_accepts_less_than_rejection():
    p, q = torch.tensor([0.7, 0.3]).double(), torch.tensor([0.4, 0.6]).double()
    num, accepted = 5000, {Match: 0, Rejection: 0}
    zeros = dict.fromkeys(accepted, 0)
    for seed in range(num):
        noise = Noise(8, seed)
        tree = TokenTree.chain(0, [draw_token(q.log(), noise, "draft", 1)])
        proposal = Proposal(tree, sampled={0: SampledChildren((1,), q)})
        rows = TreeRows(p.log().expand(2, 2), tree, (0,), 1, Sampling(temperature=1.0))
        for rule in accepted:
            verdict = rule().verify(proposal, rows, noise)
            first = tree.tokens[1] if len(verdict.path) == 2 else verdict.bonus
            accepted[rule] += len(verdict.path) == 2
            zeros[rule] += first == 0
    # Sum of p q and sum of min(p, q); standard errors 0.007.
    assert accepted[Match] / num == pytest.approx(0.46, abs=0.02)
    assert accepted[Rejection] / num == pytest.approx(0.70, abs=0.02)
    for rule in accepted:
        assert zeros[rule] / num == pytest.approx(0.7, abs=0.02)

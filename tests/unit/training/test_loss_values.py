"""Values and gradients of losses, by hand; both forms of the loss."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.common import mean_loss
from specdec_core.training.losses.counts import Counts, PassRows, Places, count
from specdec_core.training.losses.eager import eager_loss, loss_of_logits
from specdec_core.training.losses.terms import Scene, Scores, total_loss
from tests.unit.training.loss_cases import from_logits, losses, make_batch, make_head, make_passes

P, Q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
FORMS = pytest.mark.parametrize("form", [eager_loss, bounded_loss])


def one_token(form, config, p, q, label=0):
    """Loss of one predicted token, and its gradient by draft logit."""
    p, q = (torch.as_tensor(x, dtype=torch.float64).log().clamp(min=-5e3) for x in (p, q))
    states = torch.zeros(1, 2, len(p), dtype=torch.float64)
    batch = replace(
        make_batch(spans=[[(1, 2)]], length=2),
        input_ids=torch.tensor([[0, label]]),
        hidden=states.index_put((torch.tensor(0), torch.tensor(0)), p),
    )
    drafted = states.index_put((torch.tensor(0), torch.tensor(0)), q).requires_grad_()
    head = Head(torch.eye(len(p), dtype=torch.float64))
    found = form(config, batch, [DraftPass(drafted, head)], head)
    found.loss.backward()
    assert not drafted.grad[0, 1].any()  # predicts nothing
    return float(found.loss.detach()), drafted.grad[0, 0]


WORKED = [
    ("ce", {}, 1.609438, (-0.8, 0.5, 0.3)),
    ("kl", {}, 0.223805, (-0.3, 0.2, 0.1)),
    ("reverse-kl", {}, 0.193794, (-0.222017, 0.158516, 0.063501)),
    ("tv", {}, 0.3, (-0.16, 0.1, 0.06)),
    ("lk-alpha", {}, 0.356675, (-0.228571, 0.142857, 0.085714)),
    ("lk-lambda", {"lk_eta": 1.0}, 0.262163, (-0.229522, 0.149659, 0.079863)),
    ("lk-lambda", {"lk_eta": 3.0}, 0.290669, (-0.177144, 0.112246, 0.064898)),
    ("lk-lambda", {"lk_scope": "position"}, 0.290669, (-0.177144, 0.112246, 0.064898)),
    ("tv", {"temperature": 0.5}, 0.552632, (-0.188366, 0.138504, 0.049861)),
    ("kl+0.1tv", {}, 0.223805 + 0.03, (-0.316, 0.21, 0.106)),
    # Windows of one token: the expected length is the token's acceptance.
    ("wtv", {"gamma": 1}, -0.7, (-0.16, 0.1, 0.06)),
    ("window-tv", {"gamma": 1}, 0.3, (-0.16, 0.1, 0.06)),
    ("eal", {"gamma": 1}, -0.2, (-0.2 * 0.8, 0.2 * 0.5, 0.2 * 0.3)),
]


@FORMS
@pytest.mark.parametrize(("text", "options", "value", "gradient"), WORKED)
def test_the_worked_example(form, text, options, value, gradient):
    found, by_logit = one_token(form, losses(text, **options), P, Q)
    assert found == pytest.approx(value, abs=1e-6)
    assert by_logit.tolist() == pytest.approx(gradient, abs=1e-6)


NAMES = ("ce", "kl", "reverse-kl", "tv", "lk-alpha", "lk-lambda")
logits_of_5 = st.lists(st.floats(-4.0, 4.0), min_size=5, max_size=5)


@settings(max_examples=40, deadline=None)
@given(y=logits_of_5, z=logits_of_5, label=st.integers(0, 4))
def test_identities_of_single_tokens(y, z, label):
    p, q = (torch.tensor(x, dtype=torch.float64).softmax(0) for x in (y, z))
    found = {}
    for name in NAMES:
        found[name], gradient = one_token(bounded_loss, losses(name), p, q, label)
        assert float(gradient.sum()) == pytest.approx(0.0, abs=1e-12)
    assert found["kl"] >= 2.0 * found["tv"] ** 2 - 1e-12  # Pinsker
    assert -1e-12 <= found["tv"] <= 1.0
    assert found["tv"] == pytest.approx(0.5 * float((p - q).abs().sum()), abs=1e-12)


@FORMS
def test_equal_distributions_have_no_loss_and_no_gradient(form):
    for name in NAMES[1:]:
        value, gradient = one_token(form, losses(name), P, P)
        assert value == pytest.approx(0.0, abs=1e-12)
        assert gradient.abs().max() < 1e-12


@FORMS
def test_a_certain_target_makes_negative_log_overlap_cross_entropy(form):
    certain = (1.0, 0.0, 0.0)
    ce, ce_gradient = one_token(form, losses("ce"), certain, Q)
    lk, lk_gradient = one_token(form, losses("lk-alpha"), certain, Q)
    assert lk == pytest.approx(ce)
    assert torch.allclose(lk_gradient, ce_gradient)
    assert one_token(form, losses("tv"), certain, Q)[0] == pytest.approx(1.0 - Q[0])
    assert one_token(form, losses("kl"), certain, Q)[0] == pytest.approx(ce)


@FORMS
def test_without_overlap_everything_is_finite(form):
    apart = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    for text in (*NAMES, "wtv", "window-tv", "eal"):
        value, gradient = one_token(form, losses(text, gamma=1), *apart)
        assert torch.isfinite(torch.tensor(value))
        assert torch.isfinite(gradient).all()
    assert one_token(form, losses("tv"), *apart)[0] == 1.0
    # q_v - 1[v = label] and q_v - p_v: both name the target's token, which the draft never says.
    for name in ("ce", "kl"):
        value, gradient = one_token(form, losses(name), *apart)
        assert value == pytest.approx(5000.0)
        assert gradient.tolist() == [-1.0, 1.0, 0.0]
    # -q_v (1[q_v < p_v] - s): only token 1 has a q, which is above its p, and s is 0.
    for text in ("tv", "wtv", "window-tv"):
        assert one_token(form, losses(text, gamma=1), *apart)[1].tolist() == [0.0, 0.0, 0.0]


def in_a_row(form, config, p, q):
    """Loss of tokens in a row, and its gradient by token and draft logit."""
    p, q = (torch.tensor(x, dtype=torch.float64).log() for x in (p, q))
    length, vocab = len(p) + 1, p.shape[1]
    states = torch.zeros(1, length, vocab, dtype=torch.float64)
    batch = make_batch(spans=[[(1, length)]], length=length, vocab=vocab)
    batch = replace(batch, hidden=states.index_put((torch.tensor(0), torch.arange(len(p))), p))
    drafted = states.index_put((torch.tensor(0), torch.arange(len(p))), q).requires_grad_()
    head = Head(torch.eye(vocab, dtype=torch.float64))
    found = form(config, batch, [DraftPass(drafted, head)], head)
    found.loss.backward()
    return float(found.loss.detach()), drafted.grad[0, :-1].tolist()


@FORMS
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_at_full_overlap_wtv_is_minus_gamma_and_flat(form, temperature):
    """Nothing is below its p, so that the derivative is that of the side which has none."""
    config = losses("wtv", gamma=3, temperature=temperature)
    value, gradient = in_a_row(form, config, [P, Q, P, Q], [P, Q, P, Q])
    assert value == pytest.approx(-3.0)
    assert gradient == [[0.0] * 3] * 4


@FORMS
def test_one_token_apart_is_weighed_by_what_is_lost_with_it(form):
    """Acceptances 1, .7, 1: a window of 1 + .7 + .7 that grows by 1 + 1 with the second."""
    value, gradient = in_a_row(form, losses("wtv", gamma=3), [Q, P, Q], [Q, Q, Q])
    assert value == pytest.approx(-2.4)
    assert gradient[0] == gradient[2] == [0.0] * 3
    assert gradient[1] == pytest.approx([2.0 * g for g in (-0.16, 0.1, 0.06)])


@FORMS
def test_a_tiny_overlap_still_has_a_direction(form):
    """With a certain target the gradient is that of cross entropy, however unlikely its token."""
    value, gradient = one_token(form, losses("lk-alpha"), (1.0, 0.0, 0.0), (1e-30, 0.6, 0.4))
    assert value == pytest.approx(30 * 2.302585, rel=1e-6)
    assert gradient.tolist() == pytest.approx([-1.0, 0.6, 0.4])


ORACLE = torch.tensor([0.9, 0.5, 0.8, 0.4, 1.0], dtype=torch.float64).reshape(1, 1, 5)
WEIGHTS = [0.57, 0.623333, 0.786667, 0.266667, 0.106667]


def windowed(text, name, values):
    """Loss of given scores over five positions, and its derivative by score."""
    masks = torch.ones(1, 1, 5, dtype=torch.bool)
    windows = torch.tensor([[True, True, True, False, False]])
    places = Places(masks, torch.zeros(1, 1, 5, dtype=torch.int64), windows)
    leaf = values.clone().requires_grad_()
    scores = replace(Scores.zeros(places, torch.float64), **{name: leaf})
    counts = Counts.from_tensor(torch.tensor([5.0, 5.0, 3.0, 0.0], dtype=torch.float64))
    total, _ = total_loss(scores, Scene(losses(text, gamma=3), places), counts)
    total.backward()
    return float(total.detach()), leaf.grad[0, 0]


def test_eal_is_cross_entropy_weighted_by_position():
    value, gradient = windowed("eal", "surprise", -ORACLE.log())
    assert value == pytest.approx(-4.21 / 3)
    assert gradient.tolist() == pytest.approx(WEIGHTS, abs=1e-6)


def test_wtv_is_total_variation_weighted_by_position():
    value, gradient = windowed("wtv", "overlap", ORACLE)
    assert value == pytest.approx(-4.21 / 3)
    assert (-gradient * ORACLE[0, 0]).tolist() == pytest.approx(WEIGHTS, abs=1e-6)


def test_tv_over_windows_is_their_mean_and_counts_the_middle_more():
    value, gradient = windowed("window-tv", "overlap", ORACLE)
    # (.1 + .5 + .2) / 3, (.5 + .2 + .6) / 3, (.2 + .6 + 0) / 3
    assert value == pytest.approx((0.8 + 1.3 + 0.8) / 9)
    assert gradient.tolist() == pytest.approx([-n / 9 for n in (1, 2, 3, 2, 1)])


@FORMS
@pytest.mark.parametrize("num", [1, 3])
def test_windowed_losses_are_between_minus_gamma_and_0_and_the_target_reaches_it(form, num):
    batch, head = make_batch(width=3), make_head(width=3)
    for text in ("eal", "wtv"):
        found = form(losses(text, gamma=3), batch, make_passes(batch, head, num=num), head)
        assert -3.0 <= float(found.loss.detach()) <= 0.0
    itself = [DraftPass(batch.hidden.clone().requires_grad_(), head)]
    found = form(losses("wtv", gamma=3), batch, itself, head)
    assert float(found.loss.detach()) == pytest.approx(-3.0)


def test_a_constant_added_to_a_row_of_logits_changes_nothing():
    generator = torch.Generator().manual_seed(3)
    draft, target, added = (
        torch.randn(2, 9, n, generator=generator, dtype=torch.float64) for n in (5, 5, 1)
    )
    batch = make_batch()
    for text in (*NAMES, "eal", "wtv"):
        config = losses(text, gamma=2, temperature=0.7)
        plain = loss_of_logits(config, batch, [from_logits(draft)], target)
        moved = loss_of_logits(config, batch, [from_logits(draft + added)], target - 2.0 * added)
        assert float(plain.loss) == pytest.approx(float(moved.loss), abs=1e-12)


@FORMS
def test_divergence_and_acceptance_have_equal_denominators_under_masks(form):
    batch, head = make_batch(), make_head()
    config = losses("kl+tv+wtv", gamma=2)
    found = form(config, batch, make_passes(batch, make_head(width=3)), head)
    # Responses at 2..5 and 7, and at 1..8; windows of two start at 2, 3, 4 and at 1..7.
    assert found.counts.positions.tolist() == [5.0 + 8.0]
    assert float(found.counts.windows) == 3.0 + 7.0
    _, means = mean_loss(config, found.sums, found.counts)
    for name in ("kl", "tv"):
        assert means[name] == pytest.approx(float(found.sums[name]) / 13.0)
    assert means["wtv"] == pytest.approx(float(found.sums["wtv"]) / 10.0)


@FORMS
@pytest.mark.parametrize("text", ["ce", "kl+0.1eal", "wtv", "kl+tv", "lk-alpha", "lk-lambda"])
def test_micro_batches_add_up_to_the_whole_batch(form, text):
    """Sequences of 5 and 8 tokens apart: their mean is over 13, not of two means."""
    config, batch = losses(text, gamma=2), make_batch()
    draft_head, target_head = make_head(width=3), make_head()
    passes = make_passes(batch, draft_head)
    whole = form(config, batch, passes, target_head)
    whole.loss.backward()
    expected = passes[0].hidden.grad.clone()
    parts = [
        replace(
            batch,
            input_ids=batch.input_ids[i : i + 1],
            response_mask=batch.response_mask[i : i + 1],
            hidden=batch.hidden[i : i + 1],
        )
        for i in range(2)
    ]
    rows = [PassRows.of(passes[0])]
    denominators = count(config, parts[0], rows) + count(config, parts[1], rows)
    total, sums = 0.0, {}
    for index, part in enumerate(parts):
        hidden = passes[0].hidden[index : index + 1].detach().requires_grad_()
        made = [replace(passes[0], hidden=hidden)]
        found = form(config, part, made, target_head, denominators=denominators)
        found.loss.backward()
        assert torch.allclose(hidden.grad, expected[index : index + 1], atol=1e-14)
        total += float(found.loss.detach())
        for name, value in found.sums.items():
            sums[name] = sums.get(name, 0.0) + value
    assert total == pytest.approx(float(whole.loss.detach()), abs=1e-12)
    assert mean_loss(config, sums, denominators)[0] == pytest.approx(total, abs=1e-12)


def test_two_workers_with_1_and_9_tokens_have_the_mean_of_10():
    values = {}
    for spans in ([[(1, 2)]], [[(1, 10)]]):
        batch = make_batch(spans=spans, length=10)
        passes = make_passes(batch, make_head(width=3))
        found = bounded_loss(losses("kl"), batch, passes, make_head())
        values[float(found.counts.positions)] = found
    assert set(values) == {1.0, 9.0}
    sums = {"kl": values[1.0].sums["kl"] + values[9.0].sums["kl"]}
    mean, _ = mean_loss(losses("kl"), sums, values[1.0].counts + values[9.0].counts)
    losses_of = [float(values[n].loss.detach()) for n in (1.0, 9.0)]
    assert mean == pytest.approx(0.1 * losses_of[0] + 0.9 * losses_of[1])


def test_later_depths_may_count_less():
    batch, head = make_batch(), make_head(width=3)
    passes = make_passes(batch, head, num=2)
    found = bounded_loss(losses("kl", depth_decay=0.5), batch, passes, make_head())
    means = found.sums["kl"] / found.counts.positions
    assert float(found.loss.detach()) == pytest.approx(float(means[0] + 0.5 * means[1]) / 1.5)
    # Token 1 of the second sequence has no row with shift 2.
    assert found.counts.positions.tolist() == [13.0, 12.0]

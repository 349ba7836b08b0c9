"""The memory-bounded form equals the eager one, whatever the chunks."""

from dataclasses import replace

import pytest
import torch

from specdec_core.errors import ConfigError
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.eager import eager_loss
from specdec_core.training.losses.rows import Chunks
from tests.unit.training.loss_cases import (
    generators,
    losses,
    make_batch,
    make_head,
    make_passes,
    trainable,
)

SMALL = {"gamma": 3, "grpo_windows": 2, "grpo_groups": 1, "temperature": 0.8}
TEXTS = (
    "ce",
    "kl",
    "reverse-kl",
    "tv",
    "lk-alpha",
    "lk-lambda",
    "kl+eal",
    "kl+tv",
    "wtv",
    "0.5ce+kl+0.3reverse-kl+lk-lambda+eal+wtv+0.1grpo",
)
NARROW = torch.tensor([5, 0, 3, 6])  # draft id -> target id, in no order
ALL = 10_000


def run(form, config, batch, target_head, head, num=1, **options):
    """Loss, gradients of hidden states, weight and bias, and the result."""
    head, width = trainable(head), head.weight.shape[1]
    passes = make_passes(batch, head, num=num, width=width)
    before = make_passes(batch, head, num=num, width=width, seed=11)
    found = form(
        config,
        batch,
        passes,
        target_head,
        reference=before,
        generators=generators(batch),
        measures_acceptance=True,
        **options,
    )
    found.loss.backward()
    gradients = [*(p.hidden.grad for p in passes), head.weight.grad]
    if head.bias is not None:
        gradients.append(head.bias.grad)
    return found, gradients


def assert_equal(one, other, tolerance):
    (found, mine), (expected, others) = one, other
    assert torch.allclose(found.loss, expected.loss, rtol=tolerance, atol=tolerance)
    for a, b in zip(mine, others, strict=True):
        assert a.dtype == b.dtype
        assert torch.allclose(a, b, rtol=0, atol=tolerance)
    for name, value in expected.sums.items():
        assert torch.allclose(found.sums[name], value, rtol=0, atol=30 * tolerance)
    for name in ("greedy", "sampling"):
        mine, other = getattr(found.acceptance, name), getattr(expected.acceptance, name)
        assert torch.allclose(mine, other, rtol=0, atol=30 * tolerance)


def head_of(kind, dtype=torch.float64):
    """A draft head of 3 numbers, for a target of 7 ids."""
    sizes = {"narrow": 4, "prefix": 6, "padded": 9}
    head = make_head(sizes.get(kind, 7), 3, seed=5, dtype=dtype)
    if kind == "narrow":
        return replace(head, target_ids=NARROW)
    if kind == "bias":
        return replace(head, bias=torch.linspace(-1.0, 1.0, 7, dtype=dtype))
    if kind == "closed":  # a column that the draft cannot say though the target may
        return replace(head, bias=torch.tensor([0.0, 1.0, -torch.inf, *[0.0] * 4], dtype=dtype))
    return head


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["plain", "narrow", "prefix", "padded", "bias", "closed"])
@pytest.mark.parametrize("num", [1, 3])
def test_any_chunks_equal_the_eager_form_in_float64(text, kind, num):
    batch, target_head, head = make_batch(vocab=7), make_head(7), head_of(kind)
    config = losses(text, **SMALL)
    expected = run(eager_loss, config, batch, target_head, head, num)
    for rows in (1, 3, ALL):
        for vocab in (None, 2, 3):
            chunks = Chunks(rows, vocab)
            found = run(bounded_loss, config, batch, target_head, head, num, chunks=chunks)
            assert_equal(found, expected, 1e-12)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("lk-lambda", {"lk_scope": "position"}),
        ("lk-lambda", {"lk_scope": "position", "lk_eta": 1.0, "depth_decay": 0.6}),
        ("lk-lambda", {"depth_decay": 0.6}),
        ("ce+kl+0.3reverse-kl+tv+lk-alpha", {"depth_decay": 0.6}),
        ("kl+wtv+0.1grpo", {"depth_decay": 0.6, "grpo_windows": 3, "grpo_clip_ratio": 0.01}),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "narrow"])
def test_any_chunks_equal_the_eager_form_whatever_the_options(text, options, kind):
    batch, target_head, head = make_batch(vocab=7), make_head(7), head_of(kind)
    config = losses(text, **{**SMALL, **options})
    expected = run(eager_loss, config, batch, target_head, head, 3)
    for rows in (1, 3, ALL):
        for vocab in (None, 3):
            chunks = Chunks(rows, vocab)
            found = run(bounded_loss, config, batch, target_head, head, 3, chunks=chunks)
            assert_equal(found, expected, 1e-12)
    plain = run(eager_loss, losses(text, **SMALL), batch, target_head, head, 3)
    assert float(plain[0].loss.detach()) != float(expected[0].loss.detach())


@pytest.mark.parametrize("text", TEXTS)
def test_any_chunks_equal_the_eager_form_in_float32(text):
    batch = make_batch(vocab=40, dtype=torch.float32)
    heads = (make_head(40, dtype=torch.float32), make_head(40, 3, seed=5, dtype=torch.float32))
    config = losses(text, **SMALL)
    expected = run(eager_loss, config, batch, *heads)
    for rows, vocab in ((1, None), (3, None), (ALL, None), (3, 7)):
        found = run(bounded_loss, config, batch, *heads, chunks=Chunks(rows, vocab))
        assert_equal(found, expected, 1e-6)


@pytest.mark.parametrize("form", [eager_loss, bounded_loss])
@pytest.mark.parametrize("text", ["kl", "tv", "wtv", "kl+eal", "lk-lambda"])
def test_gradients_of_bfloat16_states_are_those_of_float64(form, text):
    """A draft whose overlap with the target is .98 still has its gradient, to 0.5 %."""
    generator = torch.Generator().manual_seed(0)
    batch = make_batch(spans=[[(1, 24)]], length=24, vocab=1000, width=32)
    weight = 0.3 * torch.randn(1000, 32, generator=generator, dtype=torch.float64)
    moved = 0.012 * torch.randn(1000, 32, generator=generator, dtype=torch.float64)
    low = [x.to(torch.bfloat16) for x in (batch.hidden, weight, weight + moved)]
    gradients = {}
    for dtype in (torch.float64, torch.bfloat16):
        states, target, draft = (x.to(dtype) for x in low)
        hidden = states.clone().requires_grad_()
        found = form(
            losses(text, gamma=3),
            replace(batch, hidden=states),
            [DraftPass(hidden, Head(draft))],
            Head(target),
            measures_acceptance=True,
        )
        found.loss.backward()
        overlap = found.acceptance.sampling[0] / found.counts.windows
        assert 0.97 < float(overlap) < 0.99
        gradients[dtype] = hidden.grad.double()
    exact = gradients[torch.float64]
    error = (gradients[torch.bfloat16] - exact).norm() / exact.norm()
    assert float(error) < 0.005


def test_autocast_does_not_reach_the_loss():
    batch = make_batch(vocab=40, dtype=torch.float32)
    heads = (make_head(40, dtype=torch.float32), make_head(40, 3, seed=5, dtype=torch.float32))
    expected = run(bounded_loss, losses("kl"), batch, *heads)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = run(bounded_loss, losses("kl"), batch, *heads)
    assert_equal(found, expected, 0.0)


@pytest.mark.parametrize("form", [eager_loss, bounded_loss])
@pytest.mark.parametrize("text", TEXTS)
def test_nothing_to_learn_from_is_no_loss_and_no_gradient(form, text):
    config = losses(text, **SMALL)
    batch = make_batch(vocab=7)
    empty = replace(batch, response_mask=torch.zeros_like(batch.response_mask))
    found, gradients = run(form, config, empty, make_head(7), head_of("plain"), 2)
    assert float(found.loss.detach()) == 0.0
    assert not any(gradient.any() for gradient in gradients)
    assert not found.counts.to_tensor().any()
    assert not found.acceptance.sampling.any()


@pytest.mark.parametrize("form", [eager_loss, bounded_loss])
@pytest.mark.parametrize("text", ["eal", "wtv", "window-tv", "grpo"])
def test_responses_shorter_than_a_window_have_no_windowed_loss(form, text):
    batch = make_batch(spans=[[(2, 4)], [(1, 3)]], vocab=7)
    found, gradients = run(form, losses(text, **SMALL), batch, make_head(7), head_of("plain"))
    assert float(found.loss.detach()) == 0.0
    assert not any(gradient.any() for gradient in gradients)
    assert float(found.counts.positions) == 4.0


def test_a_frozen_head_and_a_model_without_gradients():
    batch, head = make_batch(), make_head(width=3)
    config = losses("kl+eal", gamma=2)
    passes, others = make_passes(batch, head), make_passes(batch, head)
    bounded_loss(config, batch, passes, make_head()).loss.backward()
    (3.0 * eager_loss(config, batch, others, make_head()).loss).backward()
    assert head.weight.grad is None
    assert torch.allclose(3.0 * passes[0].hidden.grad, others[0].hidden.grad)
    with torch.no_grad():
        found = bounded_loss(config, batch, passes, make_head())
    assert not found.loss.requires_grad


def test_packed_documents_do_not_see_each_other():
    """Two responses in one row, and the same two in rows of their own."""
    packed = make_batch(spans=[[(1, 4), (5, 9)]], vocab=7)
    documents = torch.tensor([[0] * 4 + [1] * 5])
    touching = replace(packed, response_mask=torch.ones_like(packed.response_mask))
    config = losses("kl+wtv", gamma=2)
    passes = make_passes(packed, head_of("plain"))
    expected = bounded_loss(config, packed, passes, make_head(7))
    for form in (eager_loss, bounded_loss):
        found = form(config, touching, passes, make_head(7), document_ids=documents)
        assert torch.allclose(found.loss, expected.loss, atol=1e-12)
        assert torch.equal(found.counts.to_tensor(), expected.counts.to_tensor())


def test_what_does_not_fit_is_refused():
    batch, head = make_batch(), make_head(width=3)
    passes = make_passes(batch, head)
    config = losses("kl")
    with pytest.raises(
        ConfigError, match="hidden states of the target have 4 numbers and its head"
    ):
        bounded_loss(config, batch, passes, head)
    with pytest.raises(ConfigError, match="give the reference's passes and a generator"):
        bounded_loss(losses("kl+0.1grpo"), batch, passes, make_head())
    own = bounded_loss(config, batch, passes, make_head()).counts
    fewer = replace(own, positions=own.positions - 1.0)
    with pytest.raises(ConfigError, match="are fewer than this batch's own"):
        bounded_loss(config, batch, passes, make_head(), denominators=fewer)
    with pytest.raises(ConfigError, match="chunks of 0 rows and None columns"):
        bounded_loss(config, batch, passes, make_head(), chunks=Chunks(rows=0))
    with pytest.raises(ConfigError, match="give at least one pass"):
        bounded_loss(config, batch, [], make_head())
    wrong = [replace(passes[0], head=replace(head, target_ids=torch.tensor([0, 1])))]
    with pytest.raises(ConfigError, match="2 target ids up to 1 for a draft head of 5 ids"):
        bounded_loss(config, batch, wrong, make_head())

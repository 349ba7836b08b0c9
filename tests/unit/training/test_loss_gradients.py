"""Gradients of every loss against finite differences, in both forms."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specdec_core.training.draft import DraftPass
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.eager import eager_loss, loss_of_logits
from specdec_core.training.losses.rows import Chunks
from tests.unit.training.loss_cases import (
    from_logits,
    generators,
    losses,
    make_batch,
    make_head,
    make_passes,
)

SMALL = {"gamma": 3, "grpo_windows": 2, "grpo_groups": 1}
# The share of lk-lambda is no function of the logits for its gradient: it has a test of its own.
TEXTS = (
    "ce",
    "kl",
    "reverse-kl",
    "tv",
    "lk-alpha",
    "eal",
    "kl+eal",
    "kl+tv",
    "wtv",
    "kl+0.5wtv+0.3reverse-kl",
    "wtv+0.1grpo",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_of_logits(text, temperature):
    batch = make_batch(spans=[[(2, 9)]])
    generator = torch.Generator().manual_seed(7)
    draft, target, before = (
        torch.randn(1, 9, 5, generator=generator, dtype=torch.float64) for _ in range(3)
    )

    def value(logits):
        return loss_of_logits(
            losses(text, temperature=temperature, **SMALL),
            batch,
            [from_logits(logits)],
            target,
            reference_logits=[before],
            generators=generators(batch),
        ).loss

    assert torch.autograd.gradcheck(value, (draft.requires_grad_(),), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("num", "chunks"), [(1, Chunks(rows=2)), (2, Chunks(rows=3, vocab=2))])
def test_of_hidden_states_and_head(text, num, chunks):
    batch, target_head = make_batch(spans=[[(2, 9)]]), make_head()
    head = make_head(width=2, seed=5)
    passes = make_passes(batch, head, num=num, width=2)
    before = make_passes(batch, make_head(width=2, seed=8), num=num, width=2, seed=9)

    def value(weight, bias, *hidden):
        changed = replace(head, weight=weight, bias=bias)
        return bounded_loss(
            losses(text, temperature=0.8, **SMALL),
            batch,
            [DraftPass(h, changed, p.shift) for h, p in zip(hidden, passes, strict=True)],
            target_head,
            reference=before,
            generators=generators(batch),
            chunks=chunks,
        ).loss

    bias = torch.linspace(-0.5, 0.5, 5, dtype=torch.float64)
    inputs = (head.weight.clone(), bias, *(p.hidden.detach() for p in passes))
    leaves = tuple(x.requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(value, leaves, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", [eager_loss, bounded_loss])
@pytest.mark.parametrize("scope", ["depth", "position"])
def test_lk_lambda_is_a_sum_with_fixed_shares(form, scope):
    """Shares come from overlaps, which come from the tv of single positions."""
    batch, target_head, head = make_batch(spans=[[(2, 6)]]), make_head(), make_head(width=3)

    def gradient(config, mask):
        passes = make_passes(batch, head)
        found = form(config, replace(batch, response_mask=mask), passes, target_head)
        found.loss.backward()
        return float(found.loss.detach()), passes[0].hidden.grad

    masks = []
    for t in range(2, 6):
        mask = torch.zeros_like(batch.response_mask)
        mask[0, t] = True
        masks.append(mask)
    tv, kl = ([gradient(losses(name), mask) for mask in masks] for name in ("tv", "kl"))
    overlaps = [1.0 - value for value, _ in tv]
    if scope == "depth":
        overlaps = [sum(overlaps) / 4] * 4
    shares = [float(np.exp(-2.0 * overlap)) for overlap in overlaps]
    parts = list(zip(shares, kl, tv, strict=True))
    config = losses("lk-lambda", lk_eta=2.0, lk_scope=scope)
    value, found = gradient(config, batch.response_mask)
    assert value == pytest.approx(sum(s * k[0] + (1 - s) * t[0] for s, k, t in parts) / 4)
    assert torch.allclose(found, sum(s * k[1] + (1 - s) * t[1] for s, k, t in parts) / 4)


@pytest.mark.parametrize("form", [eager_loss, bounded_loss])
@pytest.mark.parametrize("text", TEXTS)
def test_what_predicts_no_response_token_has_no_gradient_even_if_it_is_not_a_number(form, text):
    batch, head = make_batch(), make_head(width=3)
    passes = make_passes(batch, head, num=2)
    before = make_passes(batch, head, num=2, seed=4)
    for one in passes:
        used = torch.zeros_like(batch.response_mask)
        used[:, : -one.shift] = batch.response_mask[:, one.shift :]
        one.hidden.data[~used] = torch.nan
    found = form(
        losses(text, **SMALL),
        batch,
        passes,
        make_head(),
        reference=before,
        generators=generators(batch),
    )
    found.loss.backward()
    assert torch.isfinite(found.loss.detach())
    for one in passes:
        used = ~one.hidden.detach().isnan().any(-1)
        assert torch.isfinite(one.hidden.grad).all()
        assert not one.hidden.grad[~used].any()


@pytest.mark.parametrize("form", [eager_loss, bounded_loss])
def test_the_reference_itself_has_no_gradient_of_grpo(form):
    batch, head = make_batch(), make_head(width=3)
    passes = make_passes(batch, head)
    found = form(
        losses("grpo", **SMALL),
        batch,
        passes,
        make_head(),
        reference=make_passes(batch, head),
        generators=generators(batch),
    )
    found.loss.backward()
    assert float(found.counts.groups) == 2.0  # the first response has room for one, the second too
    assert not passes[0].hidden.grad.any()

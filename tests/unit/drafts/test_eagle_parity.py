"""Training passes and decoding of an EAGLE head are one computation, in chains and trees."""

from __future__ import annotations

import pytest
import torch

from specdec_core.decoding.eagle_session import EagleSession
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.tiny import FAMILIES
from tests.learned_drafts import batch_of, training_module

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SEQUENCES = ([3, 1, 2, 6, 1, 0, 4, 2, 5, 3, 3, 1], [6, 0, 5, 5, 4, 2, 6])
CASES = [(family, kind) for family in FAMILIES for kind in ("eagle", "eagle3")]
CASES += [("llama", "eagle3-narrow")]


def logits_of(one):
    return one.hidden @ one.head.weight.T


def features_of(target, sequence, taps):
    batch = batch_of(target, [sequence], taps if taps != (HEAD_INPUT,) else ())
    return batch.hidden[0] if batch.taps is None else batch.taps[0]


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_every_training_row_is_what_decoding_says_at_that_place(family, kind):
    """Pass s, row t: the head knows features 0 to t, and drafts s tokens that are the true ones."""
    target, module = training_module(family, kind, seed=2, vocab_size=7, num_layers=4)
    taps = module.head.spec.taps
    batch = batch_of(target, SEQUENCES, () if kind == "eagle" else taps)
    passes = module(batch).passes
    assert [one.shift for one in passes] == ([2] if kind == "eagle" else [2, 3, 4, 5])
    for row, sequence in enumerate(SEQUENCES):
        features = features_of(target, sequence, taps)
        for t in range(len(sequence) - 1):
            session = EagleSession(module.head, target)
            session.observe(features[: t + 1])
            logits = session.begin(sequence[: t + 2])
            for s, one in enumerate(passes):
                if s > 0 and t + s + 1 < len(sequence):
                    (logits,) = session.extend([sequence[t + s + 1]], [s - 1])
                assert bool(one.mask[row, t]) == (t + s + 1 < len(sequence))
                if one.mask[row, t]:
                    torch.testing.assert_close(logits_of(one)[row, t], logits, **EXACT)


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_features_that_come_step_by_step_change_nothing(kind):
    """Whatever was drafted in between is gone, also where many rows come at once."""
    target, module = training_module("gemma3", kind, vocab_size=7, num_layers=4)
    sequence = SEQUENCES[0]
    features = features_of(target, sequence, module.head.spec.taps)
    whole, parts = (EagleSession(module.head, target) for _ in range(2))
    known = 0
    for length in (3, 4, 7, 12):
        parts.observe(features[known : length - 1])
        known = length - 1
        found = parts.begin(sequence[:length])
        parts.extend([1, 2, 3], [0, 0, 0])
        parts.extend([4, 4, 1], [2, 1, 2])
        whole.reset()
        whole.observe(features[: length - 1])
        torch.testing.assert_close(found, whole.begin(sequence[:length]), **EXACT)
        again = parts.begin(sequence[:length])
        torch.testing.assert_close(found, again, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_node_of_a_tree_is_the_end_of_its_own_chain(family, kind):
    """Siblings and cousins beside it do not exist for it."""
    target, module = training_module(family, kind, vocab_size=7, num_layers=4)
    sequence = SEQUENCES[0]
    features = features_of(target, sequence, module.head.spec.taps)[:-1]
    tree, chain = (EagleSession(module.head, target) for _ in range(2))
    tree.observe(features)
    tree.begin(sequence)
    levels = [([2, 5, 0], [0, 0, 0]), ([1, 1, 6], [1, 3, 1]), ([4, 0, 2, 2], [6, 4, 5, 6])]
    logits = torch.cat([tree.extend(*level) for level in levels])
    paths = [()]
    for tokens, parents in levels:
        paths += [(*paths[parent], token) for token, parent in zip(tokens, parents, strict=True)]
    chain.observe(features)
    for path, found in zip(paths[1:], logits, strict=True):
        chain.begin(sequence)
        for depth, token in enumerate(path):
            (expected,) = chain.extend([token], [depth])
        torch.testing.assert_close(found, expected, **EXACT)


def test_a_long_prompt_is_read_in_parts(monkeypatch):
    target, module = training_module("llama", "eagle3", vocab_size=7, num_layers=4)
    sequence = [(5 * place + place // 7) % 7 for place in range(40)]
    features = features_of(target, sequence, module.head.spec.taps)[:-1]
    whole = EagleSession(module.head, target)
    whole.observe(features)
    expected = whole.begin(sequence)
    monkeypatch.setattr("specdec_core.decoding.eagle_session._PASS_ROWS", 7)
    monkeypatch.setattr("specdec_core.decoding.eagle_session._FIRST_ROWS", 3)
    parts = EagleSession(module.head, target)
    parts.observe(features)
    torch.testing.assert_close(parts.begin(sequence), expected, **EXACT)

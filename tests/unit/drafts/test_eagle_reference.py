"""EAGLE in the real decode loop, step by step, beside a row-by-row reference in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specdec_core.config.learned_drafters import Eagle
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.decoding.eagle_session import EagleSession
from specdec_core.models.architecture import rope_frequencies
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.tiny import FAMILIES, tiny_library_model, tiny_target
from specdec_core.skip import SkipConfig
from tests.doubles import path_tokens
from tests.learned_drafts import make_draft
from tests.slow_eagle import SlowEagle, slow_dynamic_tree

VOCAB_SIZE = 7
PROMPTS = ([3], [1, 2, 3, 1, 2], [6, 0, 5, 5, 4, 2, 6, 0, 5, 1, 3])
OPTIONS = {"seed": 3, "vocab_size": VOCAB_SIZE, "num_layers": 4}


def slow_head(family, draft):
    library = tiny_library_model(family, **OPTIONS)
    weights = library.state_dict()
    embedding = weights["model.embed_tokens.weight"]
    spec = draft.module.spec
    shape = spec.block.model_dump()
    frequencies, _ = rope_frequencies(library.config, shape["rope"])
    scale = library.config.hidden_size**0.5 if family == "gemma3" else 1.0
    ids = range(VOCAB_SIZE) if draft.vocabulary is None else draft.vocabulary.target_ids.tolist()
    return SlowEagle(
        {name: value.numpy() for name, value in draft.module.state_dict().items()},
        spec.version,
        shape,
        (embedding * scale).numpy(),
        weights.get("lm_head.weight", embedding).numpy(),
        frequencies.double().numpy(),
        ids,
    )


class Watched:
    """The drafter, and what the reference says at the same place."""

    def __init__(self, inner, slow, top_k, depth, num_nodes):
        self.inner, self.needs, self._slow = inner, inner.needs, slow
        self._shape = (top_k, depth, num_nodes)
        self.num_steps = self.num_nodes = 0

    def reset(self, prompt, seed=0):
        self._features = []
        self.inner.reset(prompt, seed)

    def observe(self, outcome):
        self._features.append(outcome.hidden.numpy())
        self.inner.observe(outcome)

    def propose(self, sequence, budget):
        found = self.inner.propose(sequence, budget)
        features, (top_k, depth, num_nodes) = np.concatenate(self._features), self._shape
        depth = min(depth, budget.max_depth - 1, min(num_nodes, budget.max_nodes) - 1)
        expected = []
        if depth >= 0:
            expected = slow_dynamic_tree(
                lambda path: self._slow.log_probs(features, sequence, path),
                top_k,
                depth,
                min(num_nodes, budget.max_nodes),
            )
        tree = found.candidates
        paths = [tuple(path_tokens(tree, node)[1:]) for node in range(1, len(tree))]
        assert paths == expected
        self.num_steps += 1
        self.num_nodes += len(paths)
        return found


@pytest.mark.parametrize("skip", ["", "1,a0"], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", ["eagle", "eagle3", "eagle3-narrow"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_proposal_of_a_decode_is_the_references(family, kind, skip):
    if skip and family != "gemma3":
        return
    target = tiny_target(family, **OPTIONS)
    draft = make_draft(kind, target, seed=5)
    slow = slow_head(family, draft)
    view = target.view(SkipConfig.parse(skip))
    config = Eagle(model="x", top_k=2, depth=2, num_nodes=6)
    context = DrafterContext(target, view=view, load_draft=lambda *_: draft)
    drafters = [Watched(make_drafter(config, context), slow, 2, 2, 6) for _ in PROMPTS]
    generate(view, PROMPTS, drafters, max_new_tokens=12, eos_ids=())
    assert min(drafter.num_steps for drafter in drafters) > 1
    assert sum(drafter.num_nodes for drafter in drafters) > 40


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_numbers_are_the_references_up_to_float32_tables(kind):
    """Rotary tables hold float32 numbers; everything else is float64."""
    for family in FAMILIES:
        target = tiny_target(family, **OPTIONS)
        draft = make_draft(kind, target, seed=5)
        slow = slow_head(family, draft)
        spec = draft.module.spec
        view, sequence = target.view(), [*PROMPTS[2], 4]
        cache = view.new_cache(1, len(sequence))
        taps = spec.taps if spec.version == 3 else (HEAD_INPUT,)
        features = view.prefill_tapped([sequence[:-1]], cache, taps)[1][0].flatten(1)
        session = EagleSession(draft.module, target)
        session.observe(features)
        rows = [session.begin(sequence), *session.extend([5, 1], [0, 0]), *session.extend([2], [2])]
        for path, row in zip(((), (5,), (1,), (1, 2)), rows, strict=True):
            expected = torch.from_numpy(slow.logits(features.numpy(), sequence, path))
            torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-5)

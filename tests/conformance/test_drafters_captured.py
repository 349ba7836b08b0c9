"""Every drafter on captured passes: outputs are the library's own; models draft on them too."""

from __future__ import annotations

import pytest

from specdec_core.config.model_drafters import DraftModel, DraftTree, LayerSkip
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.models.tiny import FAMILIES, tiny_target
from tests.conformance.test_drafters_on_models import (
    CONFIGS,
    LIMIT,
    PROMPTS,
    VOCAB_SIZE,
    library_outputs,
)

SELF_DRAFTS = (
    DraftModel(model="path:self"),
    DraftTree(model="path:self"),
    LayerSkip(skip="1"),
)


@pytest.mark.parametrize("config", [*CONFIGS, *SELF_DRAFTS], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_are_the_librarys_own_alone_and_in_a_batch(family, config):
    target = tiny_target(family, seed=0, vocab_size=VOCAB_SIZE, capture=lambda work: work)
    view = target.view()
    context = DrafterContext(target, frozenset(), lambda _reference: target, view=view)
    for batch in (PROMPTS, *[[prompt] for prompt in PROMPTS]):
        drafters = [make_drafter(config, context) for _ in batch]
        done = generate(view, batch, drafters, max_new_tokens=LIMIT, eos_ids=())
        expected = [library_outputs(family, 0)[PROMPTS.index(prompt)] for prompt in batch]
        assert [list(each.token_ids) for each in done] == expected

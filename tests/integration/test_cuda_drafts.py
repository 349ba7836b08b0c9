"""Learned drafters on a CUDA device: outputs as without them, proposals as on the processor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.drafts.loading import DraftShelf
from specdec_core.models.graphs import cuda_capture
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.tiny import tiny_target, write_tiny_checkpoint
from specdec_core.training.expected import AcceptanceRule, acceptance_chances, one_sequence
from specdec_core.training.reference import load_reference
from specdec_core.training.target import FrozenTarget
from tests.conformance.test_drafters_learned_on_models import CONFIGS, drafters_for
from tests.conformance.test_drafters_on_models import LIMIT, PROMPTS
from tests.learned_drafts import write_draft

DEVICE = "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("is_captured", [False, True])
def test_learned_drafts_change_no_token_alone_or_in_a_batch(
    config: Eagle | Medusa, family: str, is_captured: bool
) -> None:
    capture = cuda_capture(torch.device(DEVICE)) if is_captured else None
    target = tiny_target(family, dtype="float32", vocab_size=7, device=DEVICE, capture=capture)
    view, options = target.view(), {"max_new_tokens": LIMIT, "eos_ids": ()}
    plain = generate(view, PROMPTS, [make_drafter(NoDrafter()) for _ in PROMPTS], **options)
    expected = [result.token_ids for result in plain]
    together = generate(view, PROMPTS, drafters_for(view, config), **options)
    assert [result.token_ids for result in together] == expected
    assert sum(sum(result.trace.drafted) for result in together) > 0
    (drafter,) = drafters_for(view, config, num=1)
    for prompt, result in zip(PROMPTS, together, strict=True):
        (alone,) = generate(view, [prompt], [drafter], **options)
        assert alone.token_ids == result.token_ids


@pytest.mark.parametrize(
    "config",
    [
        Eagle(model="eagle3-narrow", shape="chain", draft="coupled"),
        Medusa(model="medusa", shape="chain", draft="coupled"),
    ],
    ids=str,
)
def test_coupled_candidates_leave_drawn_outputs_as_they_are(config: Eagle | Medusa) -> None:
    view = tiny_target("llama", vocab_size=7, device=DEVICE).view()
    sampling = Sampling(temperature=0.7, top_k=4, top_p=0.9, seed=4)
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "sampling": sampling, "seeds": [11, 12, 13]}
    plain = generate(view, PROMPTS, [make_drafter(NoDrafter()) for _ in PROMPTS], **options)
    found = generate(view, PROMPTS, drafters_for(view, config, sampling), **options)
    assert [one.token_ids for one in found] == [one.token_ids for one in plain]
    assert sum(sum(one.trace.accepted) for one in found) > 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResolvedModel, Path]:
    """A target and the folder of its untrained heads."""
    folder = tmp_path_factory.mktemp("stored")
    target = write_tiny_checkpoint(folder / "target", num_layers=6, dtype="float32")
    model = resolve_model(f"path:{target}", folder / "cache")
    loaded = load_target(model, dtype="float32", device="cpu")
    for kind in ("eagle", "eagle3-narrow", "medusa"):
        write_draft(folder / kind, kind, loaded)
    return model, folder


@pytest.mark.parametrize("kind", ["eagle", "eagle3-narrow", "medusa"])
def test_a_stored_head_drafts_as_on_the_processor(
    kind: str, stored: tuple[ResolvedModel, Path]
) -> None:
    model, folder = stored
    options = Medusa if kind == "medusa" else Eagle
    config = options(model=str(folder / kind), shape="chain", gamma=3)
    found = []
    for device in (DEVICE, "cpu"):
        target = load_target(model, dtype="float32", device=device)
        view = target.view()
        context = DrafterContext(target, view=view, load_draft=DraftShelf(target).load)
        drafter = make_drafter(config, context)
        (result,) = generate(view, [[5, 90, 17, 200]], [drafter], max_new_tokens=LIMIT, eos_ids=())
        found.append((result.token_ids, result.trace.drafted, result.trace.accepted))
    assert found[0] == found[1]
    assert sum(found[0][1]) > 0


@pytest.mark.parametrize("kind", ["eagle", "eagle3-narrow", "medusa"])
@pytest.mark.parametrize(
    "rule",
    [
        AcceptanceRule(0.0, (2, 1, 1)),
        AcceptanceRule(1.0, (2, 1, 1)),
        AcceptanceRule(1.0, (1, 1, 1), is_drawn=True),
    ],
    ids=str,
)
def test_expected_acceptance_is_that_of_the_processor(
    kind: str, rule: AcceptanceRule, stored: tuple[ResolvedModel, Path]
) -> None:
    model, folder = stored
    sequence = [5, 90, 17, 200, 3, 44, 61, 7, 8, 9, 10, 11]
    found = []
    for device in (DEVICE, "cpu"):
        frozen = FrozenTarget.load(model, dtype="float32", device=device)
        draft = load_reference(folder / kind, model, num_steps=3, device=device)
        ((hidden, tapped),) = frozen.states([sequence], draft.taps)
        batch = one_sequence(sequence, 3, hidden, tapped if draft.taps else None)
        with torch.inference_mode():
            output = draft.forward(batch)
        found.append(acceptance_chances(output, batch, frozen.head, 3, rule))
    for mine, other in zip(*found, strict=True):
        assert mine == pytest.approx(other, abs=1e-5)

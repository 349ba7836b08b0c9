"""Learned drafters on tiny random targets of every family and in every number type."""

from __future__ import annotations

import pytest

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import FAMILIES, tiny_target, write_tiny_checkpoint
from specdec_core.skip import SkipConfig
from tests.conformance.test_drafters_on_models import LIMIT, PROMPTS, dense_view, library_outputs
from tests.doubles import slow_greedy
from tests.learned_drafts import make_draft

# The folder names the kind of untrained draft.
CONFIGS = (
    Eagle(model="eagle", top_k=3, depth=3, num_nodes=9),
    Eagle(model="eagle", shape="chain"),
    Eagle(model="eagle3", shape="static", branching=(3, 2, 1)),
    Eagle(model="eagle3-narrow", top_k=2, depth=2),
    Medusa(model="medusa"),
    Medusa(model="medusa-narrow", shape="dynamic", top_k=3, num_nodes=8),
    Medusa(model="medusa", shape="chain"),
)


def drafters_for(view, config, sampling=None, num=3):
    target = view.target
    context = DrafterContext(
        target,
        view=view,
        sampling=sampling or Sampling(),
        load_draft=lambda kind, _: make_draft(kind, target, seed=4),
    )
    return [make_drafter(config, context) for _ in range(num)]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_is_the_librarys_own_alone_and_in_a_batch(family, config):
    view, expected = dense_view(family, 0), library_outputs(family, 0)
    options = {"max_new_tokens": LIMIT, "eos_ids": ()}
    together = generate(view, PROMPTS, drafters_for(view, config), **options)
    assert [list(result.token_ids) for result in together] == expected
    (again,) = drafters_for(view, config, num=1)
    for prompt, result in zip(PROMPTS, together, strict=True):
        (alone,) = generate(view, [prompt], [again], **options)
        assert (alone.token_ids, alone.trace) == (result.token_ids, result.trace)


@pytest.mark.parametrize("config", CONFIGS[::2], ids=str)
@pytest.mark.parametrize("skip", ["0", "a1", "3"])
def test_sparse_views_write_their_own_output_with_stops_and_a_shared_prefix(skip, config):
    """States at and around a skipped block are those of the sparse target."""
    view = tiny_target("gemma3", seed=3, vocab_size=7, num_layers=4).view(SkipConfig.parse(skip))
    header = [4, 4, 1, 0, 2, 6, 5, 3, 3]
    prompts = [[*header, *prompt] for prompt in PROMPTS]

    def logits_after(context):
        return view.prefill([context], view.new_cache(1, len(context)))[0].tolist()

    expected = [slow_greedy(logits_after, prompt, LIMIT, (5,)) for prompt in prompts]
    drafters = drafters_for(view, config)
    prefix = view.build_prefix(header, drafters[0].needs.taps)
    results = generate(view, prompts, drafters, max_new_tokens=LIMIT, eos_ids=(5,), prefix=prefix)
    assert [list(result.token_ids) for result in results] == expected


@pytest.mark.parametrize(
    "config",
    [
        Eagle(model="eagle", top_k=3, depth=2, draft="coupled"),
        Eagle(model="eagle3-narrow", shape="chain", draft="coupled"),
        Eagle(model="eagle3", shape="static", branching=(2, 2)),
        Medusa(model="medusa-narrow"),
        Medusa(model="medusa", shape="chain", draft="coupled"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, top_k=4, top_p=0.9, seed=4),
        Sampling(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.2, seed=5),
        Sampling(repetition_penalty=1.5),
    ],
    ids=str,
)
def test_chosen_candidates_leave_sampled_outputs_as_they_are(config, sampling):
    view, seeds = dense_view("qwen3", 1), [11, 12, 13]
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "sampling": sampling, "seeds": seeds}
    plain = generate(view, PROMPTS, [make_drafter(NoDrafter()) for _ in PROMPTS], **options)
    found = generate(view, PROMPTS, drafters_for(view, config, sampling), **options)
    assert [g.token_ids for g in found] == [g.token_ids for g in plain]
    assert sum(sum(g.trace.accepted) for g in found) > 0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A target of sizes that the compiled kernels take."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 32, "num_layers": 4}
    root = tmp_path_factory.mktemp("even")
    folder = write_tiny_checkpoint(root / "model", "llama", seed=2, **sizes)
    return resolve_model(f"path:{folder}", root / "cache")


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bfloat16-int8"])
def test_half_precision_and_rounded_targets_keep_their_tokens(dtype, config, checkpoint):
    target = load_target(checkpoint, dtype=dtype, device="cpu")
    view, prompts = target.view(), [[5, 17, 201, 3], [44, 9], [1, 2, 3, 1, 2, 3, 1, 2]]
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "record_gaps": True}
    plain = generate(view, prompts, [make_drafter(NoDrafter()) for _ in prompts], **options)
    found = generate(view, prompts, drafters_for(view, config), **options)
    for one, other in zip(plain, found, strict=True):
        assert sum(other.trace.drafted) > 0
        pairs = zip(one.token_ids, other.token_ids, one.gaps, strict=True)
        first = next((gap for a, b, gap in pairs if a != b), None)
        # Equal, or parted where the target itself was of two minds in so few bits.
        assert first is None or first < 0.1

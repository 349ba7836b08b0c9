"""The compiled kernels against the library's modules, and the promise that company changes nothing.

Skipped where they cannot run: no AVX-512 bfloat16 instructions, or no compiler.
"""

import random

import pytest
import torch

from specdec_core.config.settings import Settings
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.models.architecture import architecture_of
from specdec_core.models.loading import load_target
from specdec_core.models.native.build import find_kernels
from specdec_core.models.reference import resolve_model
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.target import Target
from specdec_core.models.tiny import FAMILIES, tiny_library_model, write_tiny_checkpoint
from specdec_core.profiling.hardware import describe_hardware
from specdec_core.skip import SkipConfig
from specdec_core.tree.token_tree import TokenTree

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "head_dim": 32,
    "vocab_size": 50,  # not a multiple of the kernels' 32 outputs
    "initializer_range": 0.1,
}


@pytest.fixture(scope="module")
def kernels():
    found = find_kernels()
    if found is None:
        pytest.skip("this machine cannot run the compiled kernels")
    return found


class Weights(dict):
    """A state dictionary as a source of tensors."""

    def get(self, name, shape):
        assert tuple(self[name].shape) == shape
        return self[name].detach()


def make_target(model, kernels, dtype=torch.bfloat16, *, is_int8=False, vocabulary=None):
    arch = architecture_of(model.config)
    weights = Weights({name: tensor.to(dtype) for name, tensor in model.state_dict().items()})
    place = torch.device("cpu")
    return Target(
        arch,
        model.config,
        weights,
        dtype=dtype,
        device=place,
        identity="tiny",
        has_int8_weights=is_int8,
        kernels=kernels,
        vocabulary=vocabulary,
    )


def random_tokens(seed, length):
    return random.Random(seed).choices(range(50), k=length)


TREES = [
    TokenTree((3, 4, 5, 6, 7, 8, 9), (-1, 0, 0, 1, 1, 2, 3)),
    TokenTree.root_only(11),
    TokenTree.chain(1, random_tokens(7, 20)),
]


STORAGE = pytest.mark.parametrize("is_int8", [False, True], ids=["bfloat16", "int8"])


@STORAGE
@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batch_of_trees_is_as_close_to_float64_as_torch_kernels(family, is_int8, kernels):
    model = tiny_library_model(family, dtype="bfloat16", **SIZES)
    targets = {
        "own": make_target(model, kernels, is_int8=is_int8),
        "torch": make_target(model, None, is_int8=is_int8),
        "exact": make_target(model, None, torch.float64, is_int8=is_int8),
    }
    assert targets["own"].engine is not None
    assert targets["torch"].engine is None
    logits = {}
    for name, target in targets.items():
        view = target.view(SkipConfig.parse("m2"))
        cache = view.new_cache(3, 64)
        view.prefill([random_tokens(1, 5), random_tokens(2, 37), random_tokens(4, 16)], cache)
        found = view.forward(TREES, cache).double()
        logits[name] = torch.cat([found[row, : len(tree)] for row, tree in enumerate(TREES)])
    error = {name: (logits[name] - logits["exact"]).abs() for name in ("own", "torch")}
    assert error["own"].mean() < 1.5 * error["torch"].mean()
    assert error["own"].max() < 2 * error["torch"].max()


@STORAGE
@pytest.mark.parametrize("native", [True, False], ids=["own", "torch"])
def test_a_narrowed_head_has_the_columns_of_the_whole_one(is_int8, native, kernels):
    """33 of 50 columns: one more than the kernels compute together."""
    model = tiny_library_model("llama", dtype="bfloat16", **SIZES)
    ids = [token for token in range(50) if token % 3 != 1]
    logits = []
    for vocabulary in (DraftVocabulary(ids), None):
        target = make_target(
            model, kernels if native else None, is_int8=is_int8, vocabulary=vocabulary
        )
        view = target.view()
        cache = view.new_cache(3, 64)
        prompts = [random_tokens(1, 5), random_tokens(2, 37), random_tokens(4, 16)]
        prefilled, found = view.prefill(prompts, cache), view.forward(TREES, cache)
        own = torch.cat([found[row, : len(tree)] for row, tree in enumerate(TREES)])
        logits.append(torch.cat((prefilled, own)))
    narrowed, whole = logits
    assert narrowed.shape[1] == len(ids) == 33
    torch.testing.assert_close(narrowed, whole[:, ids], rtol=0, atol=0 if native else 0.02)


@STORAGE
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_do_not_depend_on_what_else_is_in_the_pass(family, is_int8, kernels):
    """Bit for bit: every node's logits are those of its path fed alone, token by token."""
    model = tiny_library_model(family, dtype="bfloat16", **SIZES)
    view = make_target(model, kernels, is_int8=is_int8).view()
    prompts = [random_tokens(1, 5), random_tokens(2, 37), random_tokens(4, 16)]
    cache = view.new_cache(3, 64)
    view.prefill(prompts, cache)
    together = view.forward(TREES, cache)
    committed = cache.buffer.clone()
    for row, (prompt, tree) in enumerate(zip(prompts, TREES, strict=True)):
        for node in range(len(tree)):
            path, at = [], node
            while at >= 0:
                path.insert(0, tree.tokens[at])
                at = tree.parents[at]
            alone = view.new_cache(1, 64)
            alone.buffer.copy_(committed[:, :, row : row + 1])
            alone.lengths = [len(prompt)]
            for token in path:
                logits = view.forward([TokenTree.root_only(token)], alone)
                alone.commit([[0]])
            assert torch.equal(logits[0, 0], together[row, node])


def test_sizes_the_kernels_do_not_know_run_on_torch(kernels):
    model = tiny_library_model("llama", dtype="bfloat16")
    assert make_target(model, kernels).engine is None


@STORAGE
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("is_lent", [False, True], ids=["own-cache", "dense-cache"])
def test_a_tree_run_in_parts_has_the_logits_of_the_whole(family, is_lent, is_int8, kernels):
    """Bit for bit, on a sparse view with a cache of its own and on one that borrows the dense's."""
    model = tiny_library_model(family, dtype="bfloat16", **SIZES)
    target = make_target(model, kernels, is_int8=is_int8)
    skip = SkipConfig.parse("a0,m2")
    host = target.view() if is_lent else target.view(skip)
    view = host.sparser(skip) if is_lent else host
    trees, cuts = [TREES[0], TREES[2]], (3, 8)

    def filled():
        cache = host.new_cache(2, 64)
        host.prefill([random_tokens(1, 5), random_tokens(2, 37)], cache)
        return cache

    whole = view.forward(trees, filled())
    cache = filled()
    begun = [
        TokenTree(tree.tokens[:cut], tree.parents[:cut])
        for tree, cut in zip(trees, cuts, strict=True)
    ]
    first, rest = view.forward(begun, cache), view.extend(trees, cache)
    for row, (tree, cut) in enumerate(zip(trees, cuts, strict=True)):
        parts = torch.cat([first[row, :cut], rest[row, : len(tree) - cut]])
        assert torch.equal(parts, whole[row, : len(tree)])


def test_a_pass_without_memory_is_an_error_and_the_next_one_works(kernels):
    target = make_target(tiny_library_model("llama", dtype="bfloat16", **SIZES), kernels)
    view = target.view()
    features = target.engine.model.features
    target.engine.model.features = 1 << 50
    with pytest.raises(MemoryError, match="forward over 1 x 1 tokens"):
        view.forward([TokenTree.root_only(1)], view.new_cache(1, 8))
    target.engine.model.features = features
    assert view.forward([TokenTree.root_only(1)], view.new_cache(1, 8)).isfinite().all()


def test_the_caller_says_whether_own_kernels_may_run(tmp_path, kernels):
    sizes = {name: value for name, value in SIZES.items() if name != "vocab_size"}
    folder = write_tiny_checkpoint(tmp_path / "model", dtype="bfloat16", **sizes)
    model = resolve_model(f"path:{folder}", tmp_path / "cache")
    for native in (True, False):
        settings = Settings(native=native)
        target = load_target(model, dtype="bfloat16", device="cpu", settings=settings)
        assert (target.engine is not None) is native
        described = describe_hardware(target.device, has_own_kernels=native)
        assert described.endswith("own bfloat16 kernels" if native else "torch kernels")


@pytest.mark.parametrize("skip", ["", "0", "2", "1,a2", "a0,m2"])
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_those_the_logits_come_from(family, skip, kernels):
    model = tiny_library_model(family, dtype="bfloat16", **SIZES)
    targets = {
        "own": make_target(model, kernels),
        "torch": make_target(model, None),
        "exact": make_target(model, None, torch.float64),
    }
    trees, states = TREES[:2], {}
    for name, target in targets.items():
        view = target.view(SkipConfig.parse(skip))
        caches = [view.new_cache(2, 64) for _ in range(2)]
        for cache in caches:
            view.prefill([random_tokens(1, 5), random_tokens(2, 37)], cache)
        logits, hidden = view.forward_tapped(trees, caches[0], (HEAD_INPUT, 3, 0, 1, 2))
        plain = view.forward(trees, caches[1])
        states[name] = torch.cat([hidden[row, : len(tree)] for row, tree in enumerate(trees)])
        for found in (logits, target.head(hidden[:, :, 0].contiguous())):
            for row, tree in enumerate(trees):
                assert torch.equal(found[row, : len(tree)], plain[row, : len(tree)])
        normed = target.final_norm(states[name][:, 1])
        torch.testing.assert_close(normed, states[name][:, 0], rtol=2**-7, atol=1e-6)
    assert torch.equal(states["own"][:, 2], states["torch"][:, 2])  # the embeddings
    error = {name: (states[name].double() - states["exact"]).abs() for name in ("own", "torch")}
    own, other = (error[name].mean((0, 2)) for name in ("own", "torch"))  # per tap
    assert (own <= 1.5 * other).all(), (own, other)


def test_reading_memory_sums_every_word_once(kernels):
    words = torch.arange(-5, 1000, dtype=torch.int64)
    assert kernels.read(words) == 999 * 1000 // 2 - 15

"""The compiled kernels against the library's modules, and the promise that company changes nothing.

Skipped where they cannot run: no AVX-512 bfloat16 instructions, or no compiler.
"""

import random

import pytest
import torch

from specdec_core.models.architecture import architecture_of
from specdec_core.models.native.build import find_kernels
from specdec_core.models.target import Target
from specdec_core.models.tiny import FAMILIES, tiny_library_model
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


def make_target(model, kernels, dtype=torch.bfloat16):
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
        kernels=kernels,
    )


def random_tokens(seed, length):
    return random.Random(seed).choices(range(50), k=length)


TREES = [
    TokenTree((3, 4, 5, 6, 7, 8, 9), (-1, 0, 0, 1, 1, 2, 3)),
    TokenTree.root_only(11),
    TokenTree.chain(1, random_tokens(7, 20)),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batch_of_trees_is_as_close_to_float64_as_torch_kernels(family, kernels):
    model = tiny_library_model(family, dtype="bfloat16", **SIZES)
    targets = {
        "own": make_target(model, kernels),
        "torch": make_target(model, None),
        "exact": make_target(model, None, torch.float64),
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


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_do_not_depend_on_what_else_is_in_the_pass(family, kernels):
    """Bit for bit: every node's logits are those of its path fed alone, token by token."""
    view = make_target(tiny_library_model(family, dtype="bfloat16", **SIZES), kernels).view()
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

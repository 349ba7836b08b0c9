"""Step time by number of nodes, with own and with torch's kernels, against the memory limit.

The limit is what reading the same bytes takes: as many as the weights that a step reads, on the
same huge pages, with the same threads, by a sum of our own kernel library. On a shared machine
memory is not equally fast all the time, so the sum takes its turn in every round; the fastest of
them is the limit, the median of steps is compared with it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import write
from specdec_core.config.settings import Settings
from specdec_core.models.loading import load_target
from specdec_core.models.native.build import Kernels, find_kernels
from specdec_core.models.native.memory import HugePages
from specdec_core.models.quantization import GROUP
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.target import Target
from specdec_core.models.view import TargetView
from specdec_core.tree.token_tree import TokenTree

_MODELS = ("pypi:smollm2-135m", "pypi:gemma3-270m")
# What runs: the name of its figures, the target's type, whether on own kernels, bytes of a weight.
_KINDS = (
    ("torch", "bfloat16", False, 2.0),
    ("own", "bfloat16", True, 2.0),
    ("own_int8", "bfloat16-int8", True, 1 + 4 / GROUP),
)
_NODES = (1, 2, 4, 8, 12, 16, 32)
_CONTEXT = 200
_ROUNDS = 11
_WARM_UP = 2

Job = Callable[[], object]


def run() -> None:
    """Measure and store milliseconds per forward of all kinds in turns."""
    settings = Settings()
    torch.set_num_threads(settings.threads)
    kernels = find_kernels(settings)
    if kernels is None:
        print("  this machine cannot run our own kernels: nothing measured")
        return
    write("forward", {reference: _measure(reference, kernels) for reference in _MODELS})


def _measure(reference: str, kernels: Kernels) -> dict[str, Any]:
    model = resolve_model(reference, Settings().cache_dir)
    targets = {name: _load(model, dtype, is_own) for name, dtype, is_own, _ in _KINDS}
    num_weights = _num_weights(targets["own"])
    sizes = {
        name: int(num_weights * per_weight) for name, _, is_own, per_weight in _KINDS if is_own
    }
    reads = {f"read_{name}": _reader(kernels, size) for name, size in sizes.items()}
    views = {name: target.view() for name, target in targets.items()}
    figures: dict[str, Any] = {"read_bytes": sizes}
    for nodes in _NODES:
        figures[f"{nodes} nodes"] = _compare(views, reads, nodes)
    figures["torch_operators_per_step"] = {n: _operators(view) for n, view in views.items()}
    return figures


def _load(model: ResolvedModel, dtype: str, is_own: bool) -> Target:
    settings = Settings().model_copy(update={"native": is_own})
    return load_target(model, dtype=dtype, device="cpu", settings=settings)


def _num_weights(target: Target) -> int:
    """Return how many weights one step reads: all linear maps and the head."""
    arch = target.arch
    heads = arch.num_heads + 2 * arch.num_kv_heads
    attention = arch.hidden_size * arch.head_dim * (heads + arch.num_heads)
    mlp = 3 * arch.hidden_size * arch.intermediate_size
    return arch.num_layers * (attention + mlp) + arch.hidden_size * arch.vocab_size


def _reader(kernels: Kernels, num_bytes: int) -> Job:
    words = HugePages().hold(torch.ones(num_bytes // 8, dtype=torch.int64))
    return lambda: kernels.read(words)


def _compare(views: dict[str, TargetView], reads: dict[str, Job], nodes: int) -> dict[str, float]:
    """Return the figures of steps over `nodes` nodes."""
    steps = {name: _stepper(view, nodes) for name, view in views.items()}
    seconds = _alternate({**steps, **reads})
    figures = {f"{name}_ms": median(seconds[name]) * 1e3 for name in steps}
    figures["torch_over_own"] = figures["torch_ms"] / figures["own_ms"]
    for read in reads:
        name, limit_ms = read.removeprefix("read_"), min(seconds[read]) * 1e3
        figures[f"{name}_limit_ms"] = limit_ms
        figures[f"{name}_fraction_of_limit"] = limit_ms / figures[f"{name}_ms"]
    return figures


def _stepper(view: TargetView, nodes: int) -> Job:
    tree, cache = TokenTree.chain(0, list(range(1, nodes))), _filled(view)

    def step() -> None:
        view.forward([tree], cache)
        cache.rollback([_CONTEXT])

    return step


def _filled(view: TargetView) -> Any:
    cache = view.new_cache(1, _CONTEXT + max(_NODES))
    view.prefill([random.Random(0).choices(range(view.vocab_size), k=_CONTEXT)], cache)
    return cache


def _alternate(jobs: dict[str, Job]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(_WARM_UP + _ROUNDS):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    return {name: times[_WARM_UP:] for name, times in seconds.items()}


def _operators(view: TargetView) -> int:
    """Return how many torch operators one step of one node calls."""
    cache = _filled(view)
    with profile(activities=[ProfilerActivity.CPU]) as record:
        view.forward([TokenTree.root_only(0)], cache)
    return sum(event.count for event in record.key_averages() if event.key.startswith("aten::"))

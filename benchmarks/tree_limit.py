"""How fast back-off trees could get here: acceptance by replay, step times as measured before.

Outputs are decoded plainly once; every setting is replayed on them, which is exact, and a step of
so many nodes is taken to last as long as `forward.json` says. The drafter's own time is left out.
With warm memory the same requests have been answered just before: more than memory between
different requests can give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch

from benchmarks.common import RESULTS, write
from benchmarks.suites import load_prompts
from specdec_core.config.drafters import NoDrafter, parse_drafter
from specdec_core.config.settings import Settings
from specdec_core.decoding import Generation, make_drafter, replay
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.loop import generate
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target
from specdec_core.records import StepTrace
from tasks.runtime import resolve_device

_MODELS = ("pypi:smollm2-135m", "pypi:gemma3-270m")
_SUITES = ("summarization", "gsm8k")
_NUM_REQUESTS = 12
_NEW_TOKENS = 128
_TOP_K = 8
_SETTINGS = tuple(
    f"backoff-tree:num_free={num_free},min_chance={chance},state_scope=run"
    for num_free, chance in product((1, 2, 3, 5, 8), (0.15, 0.25, 0.4))
)

Recorded = Sequence[tuple[Sequence[int], Generation]]


def run() -> None:
    """Replay every setting and store what it would reach."""
    write("tree_limit", {reference: _measure(reference) for reference in _MODELS}, "auto")


def _measure(reference: str) -> dict[str, Any]:
    settings = Settings()
    torch.set_num_threads(settings.threads)
    model = resolve_model(reference, settings.cache_dir, print)
    target = load_target(model, dtype="bfloat16", device=resolve_device("auto"))
    curve = _step_times(reference)
    return {
        "requests_per_suite": _NUM_REQUESTS,
        "new_tokens": _NEW_TOKENS,
        "step_ms": curve,
        "suites": {name: _suite(target, name, curve) for name in _SUITES},
    }


def _suite(target: Target, name: str, curve: Mapping[int, float]) -> dict[str, Any]:
    recorded = _decode(target, name)
    figures: dict[str, Any] = {}
    for text in _SETTINGS:
        drafter = make_drafter(parse_drafter(text))
        found = [
            _figures([_replay(target, drafter, *each) for each in recorded], curve)
            for _ in ("cold", "warm")
        ]
        figures[text] = dict(zip(("cold", "warm"), found, strict=True))
    best = max(figures, key=lambda text: figures[text]["cold"]["predicted_speedup"])
    return {"best": best, "settings": figures}


def _decode(target: Target, name: str) -> Recorded:
    drafter = make_drafter(NoDrafter())
    return [
        (
            prompt,
            generate(
                target.view(),
                [prompt],
                [drafter],
                max_new_tokens=_NEW_TOKENS,
                eos_ids=target.eos_ids,
                num_top_k=_TOP_K,
            )[0],
        )
        for prompt in load_prompts(name, target, _NUM_REQUESTS).ids
    ]


def _replay(target: Target, drafter: Drafter, prompt: Sequence[int], done: Generation) -> StepTrace:
    return replay(
        drafter,
        prompt,
        done.token_ids,
        done.top_k,
        max_new_tokens=_NEW_TOKENS,
        vocab_size=target.view().vocab_size,
    )


def _figures(traces: Sequence[StepTrace], curve: Mapping[int, float]) -> dict[str, float]:
    """Return tokens and draft nodes per step, and the speed over plain decoding that they mean."""
    committed = np.concatenate([trace.committed for trace in traces])
    drafted = np.concatenate([trace.drafted for trace in traces])
    step_ms = np.interp(drafted + 1, list(curve), list(curve.values()))
    return {
        "acceptance_length": float(committed.mean()),
        "draft_nodes": float(drafted.mean()),
        "predicted_speedup": float(committed.sum() * curve[1] / step_ms.sum()),
    }


def _step_times(reference: str) -> dict[int, float]:
    """Return milliseconds of a step of our kernels by nodes, as stored."""
    figures = json.loads((RESULTS / "forward.json").read_text())["figures"][reference]
    return {
        int(name.removesuffix(" nodes")): step["own_ms"]
        for name, step in figures.items()
        if name.endswith(" nodes")
    }

"""Our decode loop without a drafter against the library's greedy `generate`, request by request.

The loop runs on the stored weights and, as a row of its own, on weights rounded to 8 bits: another
target (lossy), whose outputs need not be the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.common import Bench, Timed, ratio, take_turns, write
from specdec_core.config.drafters import NoDrafter
from specdec_core.config.dtype import type_label
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.models.loading import load_target
from specdec_core.models.target import Target

_MODELS = (("pypi:gemma3-270m", "translation"), ("pypi:smollm2-135m", "summarization"))
_ROUNDED = "bfloat16-int8"
_NEW_TOKENS = 64
_NUM_REQUESTS = 13

Prompts = Sequence[Sequence[int]]


def run() -> None:
    """Measure and store tokens per second of all three, prefill included, equal token counts."""
    figures = {reference: _compare(reference, domain) for reference, domain in _MODELS}
    write("autoregressive", figures, "auto")


def _compare(reference: str, domain: str) -> dict[str, Any]:
    bench = Bench.load(reference, domain, _NUM_REQUESTS)
    prompts, device = bench.prompts().ids, bench.target.device
    library = AutoModelForCausalLM.from_pretrained(bench.model.folder, dtype=torch.bfloat16)
    rounded = load_target(bench.model, dtype=_ROUNDED, device=str(device))
    ours, in_8_bits, theirs = take_turns(
        (
            _our_job(bench.target, prompts),
            _our_job(rounded, prompts),
            _library_job(library.to(device).eval(), device, prompts),
        ),
        _NUM_REQUESTS,
    )
    return {
        "new_tokens": _NEW_TOKENS,
        "speedup_over_library": ratio(ours, theirs),
        type_label(_ROUNDED): {
            "speedup_over_our_bfloat16": ratio(in_8_bits, ours),
            "speedup_over_library": ratio(in_8_bits, theirs),
        },
    }


def _our_job(target: Target, prompts: Prompts) -> Callable[[int], Timed]:
    view = target.view()

    def decode(index: int) -> Timed:
        start = time.perf_counter()
        generate(
            view,
            [prompts[index]],
            [make_drafter(NoDrafter())],
            max_new_tokens=_NEW_TOKENS,
            eos_ids=(),
        )
        return Timed(_NEW_TOKENS, time.perf_counter() - start)

    return decode


def _library_job(model: Any, device: torch.device, prompts: Prompts) -> Callable[[int], Timed]:
    def decode(index: int) -> Timed:
        ids = torch.tensor([prompts[index]], device=device)
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=_NEW_TOKENS,
                min_new_tokens=_NEW_TOKENS,
            )
        return Timed(_NEW_TOKENS, time.perf_counter() - start)

    return decode

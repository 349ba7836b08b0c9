"""Our decode loop without a drafter against the library's greedy `generate`, request by request."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.common import Bench, Timed, alternate, ratio, write
from specdec_core.config.drafters import NoDrafter
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter

_MODELS = (("pypi:gemma3-270m", "translation"), ("pypi:smollm2-135m", "summarization"))
_NEW_TOKENS = 64
_NUM_REQUESTS = 13


def run() -> None:
    """Measure and store tokens per second of both, prefill included, equal token counts."""
    figures = {reference: _compare(reference, domain) for reference, domain in _MODELS}
    write("autoregressive", figures)


def _compare(reference: str, domain: str) -> dict[str, Any]:
    bench = Bench.load(reference, domain, _NUM_REQUESTS)
    prompts = bench.prompts().ids
    library = AutoModelForCausalLM.from_pretrained(bench.model.folder, dtype=torch.bfloat16)
    library = library.to(bench.target.device).eval()
    view = bench.target.view()

    def ours(index: int) -> Timed:
        start = time.perf_counter()
        generate(
            view,
            [prompts[index]],
            [make_drafter(NoDrafter())],
            max_new_tokens=_NEW_TOKENS,
            eos_ids=(),
        )
        return Timed(_NEW_TOKENS, time.perf_counter() - start)

    def theirs(index: int) -> Timed:
        ids = torch.tensor([prompts[index]], device=bench.target.device)
        start = time.perf_counter()
        with torch.inference_mode():
            library.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=_NEW_TOKENS,
                min_new_tokens=_NEW_TOKENS,
            )
        return Timed(_NEW_TOKENS, time.perf_counter() - start)

    mine, library_times = alternate(ours, theirs, _NUM_REQUESTS)
    return {"new_tokens": _NEW_TOKENS, "speedup_over_library": ratio(mine, library_times)}

"""One selection evaluation: batched, batched with replay, and the same work at batch 1."""

from __future__ import annotations

from typing import Any

from benchmarks.common import Bench, write
from specdec_core.evaluation import evaluate

_SETTINGS = (("pypi:gemma3-270m", "translation", 48), ("pypi:smollm2-135m", "summarization", 72))
_DRAFTER = "prompt-lookup:num_tokens=4"
_REPEATS = 3


def run() -> None:
    """Measure and store wall seconds of one evaluation of 16 items, ways alternating."""
    figures = {
        f"{reference} {domain}": _compare(reference, domain, limit)
        for reference, domain, limit in _SETTINGS
    }
    write("batching", figures, "auto")


def _compare(reference: str, domain: str, limit: int) -> dict[str, Any]:
    bench = Bench.load(reference, domain, 16)
    ways = {
        "batch 1": {"batch_size": 1, "mode": "decode"},
        "batch 16": {"batch_size": 16, "mode": "decode"},
        "batch 16, replay": {"batch_size": 16, "mode": "replay"},
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    acceptance: dict[str, float] = {}
    for repeat in range(_REPEATS + 1):
        for name, options in ways.items():
            request = bench.request(_DRAFTER, max_new_tokens=limit, **options)
            result = evaluate(request, bench.target, bench.suite)
            acceptance[name] = result.summary.acceptance_length
            if repeat:  # the first round warms up
                seconds[name].append(result.wall_s)
    base = sorted(seconds["batch 1"])
    return {
        name: {
            "seconds": values,
            "share_of_batch_1": sorted(values)[len(values) // 2] / base[len(base) // 2],
            "share_range": [min(values) / base[-1], max(values) / base[0]],
            "acceptance_length": acceptance[name],
        }
        for name, values in seconds.items()
    }

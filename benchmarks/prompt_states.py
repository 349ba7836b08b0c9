"""Selection evaluations that share what prompts became with the set before, and ones that do not.

Both evaluate the same skip sets on the same items in one batch, set by set, who goes first
changing. Sets come in the order of a search, a few of each kind: single layers spread over the
model, which share with the dense target, and pairs in the middle of a level, which share with the
pair before. The dense target and the pair before the first are evaluated too, unmeasured. Samples
must be equal. Finished cells are kept in the cache folder: an interrupted run goes on behind them.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.common import Bench, Timed, ratio, write
from benchmarks.suites import SUITES
from specdec_core.config.settings import Settings
from specdec_core.data.split import split
from specdec_core.data.suites import load_suite
from specdec_core.evaluation import evaluate
from specdec_core.models.loading import load_target
from specdec_core.models.prompt_states import PromptStates
from specdec_core.models.reference import resolve_model
from specdec_core.provenance import code_version
from specdec_core.records import EvaluationResult
from tasks.run_files import write_text
from tasks.runtime import resolve_device

_MODELS = ("pypi:smollm2-135m", "pypi:gemma3-270m")
_SUITES = {"translation": 48, "summarization": 72}  # longest output, tokens
_NUM_ITEMS = 16
_DRAFTER = "prompt-lookup:num_tokens=3"
_SINGLES, _PAIRS = 5, 3


def run() -> None:
    """Measure every cell that is not there yet, and store all."""
    figures = {
        reference: {suite: _cell(reference, suite) for suite in _SUITES} for reference in _MODELS
    }
    write("prompt_states", figures, "auto")


def measured_sets(num_layers: int) -> tuple[str, ...]:
    """Return the sets of the comparison in the order of a search; the last pairs are one run."""
    spread = [round((one + 1) * num_layers / (_SINGLES + 1)) for one in range(_SINGLES)]
    first, middle = num_layers // 4, num_layers // 2
    pairs = [f"{first},{middle + number}" for number in range(_PAIRS)]
    return (*map(str, spread), *pairs)


def _cell(reference: str, suite: str) -> dict[str, Any]:
    settings = Settings()
    described = [reference, suite, code_version(), describe_sizes()]
    name = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:24]
    kept = settings.cache_dir / "benchmarks" / f"prompt-states-{name}.json"
    if not kept.exists():
        found = _measure(_load(reference, suite, settings), _SUITES[suite], settings)
        write_text(kept, json.dumps(found))
        gc.collect()
    cell: dict[str, Any] = json.loads(kept.read_text())
    print(f"  {reference} {suite}: {cell['evaluation']['estimate']:.2f}", flush=True)
    return cell


def describe_sizes() -> list[Any]:
    """Return what a cell is measured with."""
    return [_SUITES, _NUM_ITEMS, _DRAFTER, _SINGLES, _PAIRS]


def _load(reference: str, name: str, settings: Settings) -> Bench:
    torch.set_num_threads(settings.threads)
    model = resolve_model(reference, settings.cache_dir, print)
    target = load_target(model, dtype="bfloat16", device=resolve_device("auto"))
    domain, public = SUITES[name]
    suite = load_suite(domain, public, settings.data)
    return Bench(model, target, suite, split(suite, _NUM_ITEMS, 2).selection_ids)


def _measure(bench: Bench, limit: int, settings: Settings) -> dict[str, Any]:
    states = PromptStates(int(settings.prompt_states_gib * 2**30))

    def evaluated(skip: str, held: PromptStates | None) -> EvaluationResult:
        changes = {"batch_size": _NUM_ITEMS, "mode": "replay", "max_new_tokens": limit}
        request = bench.request(_DRAFTER, skip=skip, **changes)
        return evaluate(request, bench.target, bench.suite, None, None, held)

    skips = measured_sets(bench.target.num_layers)
    before = {skips[0]: "", skips[_SINGLES]: _predecessor(skips[_SINGLES])}
    results: dict[str, list[EvaluationResult]] = {"shared": [], "anew": []}
    for number, skip in enumerate(skips):
        if skip in before:
            evaluated(before[skip], states)
        order = ("shared", "anew") if number % 2 else ("anew", "shared")
        for way in order:
            results[way].append(evaluated(skip, states if way == "shared" else None))
        shared, anew = (results[way][-1] for way in ("shared", "anew"))
        assert shared.samples == anew.samples, f"{skip}: sharing changed an output"
    return {
        "suite": bench.suite.source,
        "num_items": _NUM_ITEMS,
        "prompt_tokens": sum(sample.prompt_tokens for sample in results["anew"][0].samples),
        "skips": list(skips),
        "held_bytes": states.num_bytes,
        "reused_layers": _reused(results["shared"]),
        "evaluation": _ratio([_seconds(results[way]) for way in ("shared", "anew")]),
        "prefill": _ratio([_prefills(results[way]) for way in ("shared", "anew")]),
        "seconds": {way: _seconds(each) for way, each in results.items()},
        "prefill_seconds": {way: _prefills(each) for way, each in results.items()},
        "num_equal": len(skips),
    }


def _predecessor(pair: str) -> str:
    """Return the set that a search would ask before a pair."""
    first, second = map(int, pair.split(","))
    return f"{first},{second - 1}"


def _reused(results: Sequence[EvaluationResult]) -> float:
    """Return the share of prompt tokens times layers that was taken over."""
    reused = sum(result.prompt_work.reused for result in results)
    return reused / (reused + sum(result.prompt_work.computed for result in results))


def _seconds(results: Sequence[EvaluationResult]) -> list[float]:
    return [result.wall_s for result in results]


def _prefills(results: Sequence[EvaluationResult]) -> list[float]:
    return [result.phases.prefill for result in results]


def _ratio(seconds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return how many evaluations with sharing take the time of one without, over paired sets."""
    mine, other = ([Timed(1, each) for each in side] for side in seconds)
    found = ratio(mine, other)
    return {name: found[name] for name in ("estimate", "low", "high", "confidence")}

"""PTD, lookahead and self-draft where a step processes equally many nodes: counts, no times.

Every method runs at several sizes on the paper's benchmark types. All three begin every request
with nothing but its prompt, whose n-grams each of them may use, and have no corpus. Sizes were
chosen on other questions than those decoded here, with as many tries for each method.

Cells, one setting on one benchmark each, are kept in the cache folder: an interrupted run goes on
where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.common import write
from benchmarks.suites import Prompts, load_prompts
from specdec_core.bench.overhead import (
    Overhead,
    Setting,
    StepCounts,
    best_within,
    mean_points,
    ratios_within,
)
from specdec_core.bench.statistics import Bootstrap
from specdec_core.config.ablation import OVERHEAD_CURVES
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.settings import Settings
from specdec_core.decoding import DrafterContext, make_drafter
from specdec_core.decoding.loop import generate
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target
from specdec_core.provenance import code_version
from tasks.runtime import resolve_device

# Model: requests per benchmark, output tokens.
_MODELS = {"pypi:smollm2-135m": (6, 128)}
_BENCHMARKS = ("mt_bench", "gsm8k", "humaneval", "mbpp")
# Nodes per step: drafting and candidate nodes together, and drafting nodes alone.
_BUDGETS: dict[Overhead, tuple[float, ...]] = {
    "total": (20.0, 30.0, 40.0, 50.0),
    "drafting": (12.0, 20.0, 30.0, 40.0),
}
_BOOTSTRAP = Bootstrap(num_resamples=4000)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One setting on one benchmark.

    Attributes:
        counts: Sums over the steps of every request.
        outputs: A digest of every request's output.
    """

    counts: StepCounts
    outputs: tuple[str, ...]


def run() -> None:
    """Measure and store every setting, and the ratios of PTD's efficiency over the others'."""
    settings = Settings()
    torch.set_num_threads(settings.threads)
    figures = {
        reference: _measure_model(reference, settings.cache_dir, *sizes)
        for reference, sizes in _MODELS.items()
    }
    write("equal_overhead", figures, "auto")


def _measure_model(
    reference: str, cache: Path, num_requests: int, new_tokens: int
) -> dict[str, Any]:
    model = resolve_model(reference, cache, print)
    target = load_target(model, dtype="bfloat16", device=resolve_device("auto"))
    prompts = {name: load_prompts(name, target, num_requests) for name in _BENCHMARKS}
    cells: dict[str, dict[str, _Cell]] = {}
    for method in (text for curve in OVERHEAD_CURVES for text in curve.methods):
        print(f"  {reference} {method}", flush=True)
        cells[method] = {}
        for name, chosen in prompts.items():
            identity = [model.identity, chosen.ids, method, new_tokens, code_version()]
            path = cache / "benchmarks" / f"equal-overhead-{_digest(identity)}.json"
            cells[method][name] = _stored(path) or _measure(
                target, chosen, method, new_tokens, path
            )
    return {
        "new_tokens": new_tokens,
        "requests_per_benchmark": num_requests,
        "prompts": {name: chosen.source for name, chosen in prompts.items()},
        "settings": {method: _figures(found) for method, found in cells.items()},
        "identical_outputs": _identical(cells.values()),
        **{f"at_equal_{overhead}": _compared(cells, overhead) for overhead in _BUDGETS},
    }


def _measure(target: Target, prompts: Prompts, method: str, new_tokens: int, path: Path) -> _Cell:
    """Decode every prompt, keep the cell in a file, and return it."""
    drafter = make_drafter(
        parse_drafter(method), DrafterContext(target, target.eos_ids, view=target.view())
    )
    done = [
        generate(
            target.view(),
            [ids],
            [drafter],
            max_new_tokens=new_tokens,
            eos_ids=target.eos_ids,
            seeds=[index],
        )[0]
        for index, ids in enumerate(prompts.ids)
    ]
    cell = _Cell(
        StepCounts.of(generation.trace for generation in done),
        tuple(_digest(generation.token_ids) for generation in done),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(asdict(cell)))
    temporary.replace(path)
    return cell


def _stored(path: Path) -> _Cell | None:
    if not path.is_file():
        return None
    document = json.loads(path.read_text())
    counts = {name: tuple(values) for name, values in document["counts"].items()}
    return _Cell(StepCounts(**counts), tuple(document["outputs"]))


def _figures(cells: dict[str, _Cell]) -> dict[str, Any]:
    """Figures of one setting: means over benchmarks, and each of them."""
    each = {name: _benchmark_figures(cell.counts) for name, cell in cells.items()}
    names = next(iter(each.values()))
    return {
        **{name: fmean(figures[name] for figures in each.values()) for name in names},
        "benchmarks": each,
    }


def _benchmark_figures(counts: StepCounts) -> dict[str, float]:
    steps, hits = sum(counts.steps), sum(counts.hits)
    return {
        "decoding_efficiency": 1 + sum(counts.accepted) / steps,
        "hit_rate": hits / steps,
        "acceptance_length_on_hits": 1 + sum(counts.accepted) / max(hits, 1),
        "draft_overhead": sum(counts.drafting) / steps,
        "verify_overhead": sum(counts.candidates) / steps,
    }


def _compared(cells: dict[str, dict[str, _Cell]], overhead: Overhead) -> dict[str, Any]:
    """What each method reaches within every budget, and PTD's ratios over the others."""
    settings: dict[str, list[Setting]] = {
        curve.name: [[cells[text][name].counts for name in _BENCHMARKS] for text in curve.methods]
        for curve in OVERHEAD_CURVES
    }
    budgets = _BUDGETS[overhead]
    reached = {
        name: [best_within(mean_points(found, overhead), budget) for budget in budgets]
        for name, found in settings.items()
    }
    first, *others = settings
    ratios = {
        other: ratios_within(settings[first], settings[other], budgets, overhead, _BOOTSTRAP)
        for other in others
    }
    labels = [*(f"{budget:g}" for budget in budgets), "mean"]
    return {
        "decoding_efficiency": {
            name: dict(zip(labels, values, strict=False)) for name, values in reached.items()
        },
        **{
            f"{first}_over_{other}": {
                label: asdict(ratio) for label, ratio in zip(labels, found, strict=True)
            }
            for other, found in ratios.items()
        },
    }


def _identical(cells: Collection[dict[str, _Cell]]) -> dict[str, int]:
    """How many outputs are those of the first method on the same request."""
    reference, *others = ([o for cell in each.values() for o in cell.outputs] for each in cells)
    pairs = [pair for outputs in others for pair in zip(outputs, reference, strict=True)]
    return {"compared": len(pairs), "identical": sum(own == first for own, first in pairs)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]

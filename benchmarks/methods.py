"""Every drafting method, our plain loop and the library's `generate`, side by side per request.

One process holds our target and the library's model of the same weights. Each request is decoded
by every method in turn, the order changing from request to request; one request per suite warms
up. Our methods are compared by decode seconds. The library is compared by wall seconds with the
prompt included; the prompt's seconds are those of the plain loop, for all our methods.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import certificate, order_of, write
from benchmarks.library import Job, LibraryModel
from benchmarks.suites import SPEC_BENCH, SUITES, Prompts, load_prompts
from specdec_core.bench.metrics import count_acceptance
from specdec_core.bench.statistics import RequestTimes, speedup_interval
from specdec_core.bench.strata import mean_domain_speedup
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.presets import FEW_NODES
from specdec_core.config.settings import Settings
from specdec_core.decoding import DrafterContext, Generation, make_drafter
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.loop import generate
from specdec_core.decoding.timing import synchronizer
from specdec_core.models.loading import load_target
from specdec_core.models.prefix import PrefixCache
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target
from specdec_core.models.view import TargetView
from tasks.runtime import resolve_device

_PLAIN = "none"
_LIBRARY = ("library greedy", "library prompt lookup")
_ASSISTED = "library assistant"
# Where the library is measured too; its assisted decoding, several times slower, on one suite.
_PEERS = {name: _LIBRARY for name in SPEC_BENCH} | {"translation": (*_LIBRARY, _ASSISTED)}
_MODELS = ("pypi:smollm2-135m", "pypi:gemma3-270m")
_NUM_REQUESTS = 5  # of each suite; the first warms up
_NEW_TOKENS = 128

METHODS = (*FEW_NODES, "layer-skip:skip=10,12,14,gamma=1")


@dataclass(slots=True)
class _Runs:
    """What one method did on one suite, request by request, warm-up left out."""

    tokens: list[int] = field(default_factory=list)
    decode_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)

    def add(self, tokens: int, decode_s: float, wall_s: float) -> None:
        self.tokens.append(tokens)
        self.decode_s.append(decode_s)
        self.wall_s.append(wall_s)

    def decoding(self) -> RequestTimes:
        """Tokens after the first over decode seconds."""
        return RequestTimes([max(1, n - 1) for n in self.tokens], self.decode_s)

    def whole(self) -> RequestTimes:
        """All tokens over wall seconds, prompt included."""
        return RequestTimes(self.tokens, self.wall_s)


def run() -> None:
    """Measure and store every cell, its certificate, and averages over the Spec-Bench suites."""
    settings = Settings()
    torch.set_num_threads(settings.threads)
    figures = {}
    for reference in _MODELS:
        figures[reference] = _measure_model(reference, METHODS, settings.cache_dir)
    write("methods", figures, "auto")


def _measure_model(reference: str, methods: Sequence[str], cache: Path) -> dict[str, Any]:
    model = resolve_model(reference, cache, print)
    target = load_target(model, dtype="bfloat16", device=resolve_device("auto"))
    library = LibraryModel.load(model.folder, target)
    context = DrafterContext(target, target.eos_ids, view=target.view())
    suites: dict[str, dict[str, _Runs]] = {}
    for name in SUITES:
        prompts = load_prompts(name, target, _NUM_REQUESTS)
        drafters = {text: make_drafter(parse_drafter(text), context) for text in methods}
        print(f"  {reference} {name} ({prompts.source})", flush=True)
        peers = _PEERS.get(name, ())
        suites[name] = _measure_suite(target, library, prompts, drafters, peers)
    cells = {
        name: {
            method: _cell(target, prompts_runs[method], prompts_runs)
            for method in prompts_runs
            if not method.startswith("library")
        }
        for name, prompts_runs in suites.items()
    }
    return {
        "new_tokens": _NEW_TOKENS,
        "requests_per_suite": _NUM_REQUESTS - 1,
        "mean_over_spec_bench": {
            method: _averages(method, [suites[name] for name in SPEC_BENCH])
            for method in (_PLAIN, *methods)
        },
        "cells": cells,
    }


def _measure_suite(
    target: Target,
    library: LibraryModel,
    prompts: Prompts,
    drafters: Mapping[str, Drafter],
    peers: Sequence[str],
) -> dict[str, _Runs]:
    """Decode every prompt with every method; the first prompt warms up."""
    view = target.view()
    every = {_PLAIN: make_drafter(parse_drafter(_PLAIN)), **drafters}
    runs = {name: _Runs() for name in (*every, *peers)}

    def ours(drafter: Drafter, ids: Sequence[int], prefix: PrefixCache) -> Job:
        def decode() -> tuple[int, float, Generation | None]:
            [done] = generate(
                view,
                [ids],
                [drafter],
                max_new_tokens=_NEW_TOKENS,
                eos_ids=target.eos_ids,
                prefix=prefix,
                synchronize=synchronizer(target.device),
            )
            return len(done.token_ids), done.phases.decode, done

        return decode

    for index, ids in enumerate(prompts.ids):
        prefix, prompt_s = _prompt(view, ids)
        jobs = {name: ours(drafter, ids, prefix) for name, drafter in every.items()}
        jobs |= {name: library.job(name, ids, _NEW_TOKENS) for name in peers}
        for name in order_of(list(jobs), index):
            tokens, seconds, generation = jobs[name]()
            if index == 0:
                continue
            own = prompt_s if generation is not None else 0.0
            runs[name].add(tokens, max(seconds, 1e-9), seconds + own)
            if generation is not None:
                runs[name].generations.append(generation)
    _record_gaps(target, prompts, runs)
    return runs


def _prompt(view: TargetView, ids: Sequence[int]) -> tuple[PrefixCache, float]:
    """Return the rows of all prompt tokens but the last, and the seconds of the whole prompt."""
    wait = synchronizer(view.device) or (lambda: None)
    wait()
    started = time.perf_counter()
    view.prefill([ids], view.new_cache(1, len(ids)))
    wait()
    seconds = time.perf_counter() - started
    return view.build_prefix(ids[:-1]), seconds


def _record_gaps(target: Target, prompts: Prompts, runs: dict[str, _Runs]) -> None:
    """Decode plainly again, with gaps, the requests that some method answered otherwise."""
    plain = runs[_PLAIN].generations
    for index, reference in enumerate(plain):
        others = (run.generations[index] for run in runs.values() if run.generations)
        if any(other.token_ids != reference.token_ids for other in others):
            [plain[index]] = generate(
                target.view(),
                [prompts.ids[index + 1]],
                [make_drafter(parse_drafter(_PLAIN))],
                max_new_tokens=_NEW_TOKENS,
                eos_ids=target.eos_ids,
                record_gaps=True,
            )


def _cell(target: Target, mine: _Runs, runs: Mapping[str, _Runs]) -> dict[str, Any]:
    """Figures of one method on one suite."""
    plain = runs[_PLAIN]
    counts = count_acceptance(generation.trace for generation in mine.generations)
    phases = [generation.phases for generation in mine.generations]
    total = sum(phase.decode for phase in phases)
    drafting = [sum(generation.trace.drafting) for generation in mine.generations]
    has_steps = counts.num_steps > 0
    return {
        "speedup_over_autoregressive": _ratio(mine.decoding(), plain.decoding()),
        "speedup_over_library": {
            name: _ratio(mine.whole(), runs[name].whole())
            for name in (*_LIBRARY, _ASSISTED)
            if name in runs
        },
        "tokens_per_s": sum(mine.decoding().tokens) / sum(mine.decode_s),
        "acceptance_length": counts.acceptance_length if has_steps else None,
        "hit_rate": counts.hit_rate if has_steps else None,
        "decoding_efficiency": counts.decoding_efficiency if has_steps else None,
        "position_acceptance": counts.position_acceptance()[:8] if counts.num_hits else [],
        "accepted_quartiles": [counts.accepted_quantile(q) for q in (0.25, 0.5, 0.75)]
        if has_steps
        else [],
        "draft_overhead": sum(drafting) / counts.num_steps if has_steps else 0.0,
        "verify_overhead": counts.mean_drafted_nodes if has_steps else 0.0,
        "share_of_decode_time": {
            name: sum(getattr(phase, name) for phase in phases) / total
            for name in ("draft", "forward", "verify", "commit")
        },
        "certificate": certificate(target.device, plain.generations, mine.generations),
        "requests": {"tokens": mine.tokens, "decode_s": mine.decode_s, "wall_s": mine.wall_s},
    }


def _averages(method: str, suites: Sequence[Mapping[str, _Runs]]) -> dict[str, Any]:
    """Means over suites of the speedups, each suite weighing the same."""
    over_plain = [(runs[method].decoding(), runs[_PLAIN].decoding()) for runs in suites]
    averages = {"speedup_over_autoregressive": asdict(mean_domain_speedup(over_plain))}
    for name in _LIBRARY:
        over = [(runs[method].whole(), runs[name].whole()) for runs in suites]
        averages[f"speedup_over_{name.replace(' ', '_')}"] = asdict(mean_domain_speedup(over))
    return averages


def _ratio(method: RequestTimes, baseline: RequestTimes) -> dict[str, Any]:
    return asdict(speedup_interval(method, baseline))

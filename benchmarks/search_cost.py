"""The translation search at beam 4 and depth 4: the seconds of its evaluations, plain and shared.

The search runs in full as users run it: all items in one batch, the drafter replayed on the known
outputs, prompts' states shared between skip sets. Every so-manieth set is evaluated in the plain
way right afterwards: one request at a time with the drafter in the loop, no prompt's states kept
(the few-shot beginning that all prompts share is still computed once per set); and in batches of
four, as a search that drops sets by bounds would. The plain search is what its sampled sets cost,
times all sets. Scores must be equal, so the plain search would choose the same.

Evaluations are kept in the cache folder: an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, astuple, dataclass
from typing import Any

import torch

from benchmarks.common import write
from specdec_core.bench.statistics import RequestTimes, speedup_interval
from specdec_core.config.domains import search_config
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.records import EvaluationResult
from specdec_core.search.outcome import Score
from specdec_core.search.strategies import make_strategy
from specdec_core.skip import SkipConfig
from tasks.driver import score_of
from tasks.evaluator import ModelEvaluator
from tasks.plan import Plan, plan_search
from tasks.run_files import write_text

_MODELS = ("pypi:gemma3-270m", "pypi:smollm2-135m")
_SEARCH = {"beam": 4, "depth": 4, "num_selection": 16, "batch_size": 16, "suite": "builtin"}
_EVERY = 8
_WAYS: dict[str, dict[str, Any]] = {
    "plain": {"batch_size": 1, "mode": "decode"},
    "batches of 4": {"batch_size": 4},
}


@dataclass(frozen=True, slots=True)
class _Cost:
    """One evaluation: what it cost, and acceptance, metric and nodes that it found."""

    seconds: float
    tokens: int
    found: tuple[float, float | None, float]


def run() -> None:
    """Search with both models, and store what it cost."""
    write("search_cost", {reference: _measure(reference) for reference in _MODELS}, "auto")


def _measure(reference: str) -> dict[str, Any]:
    settings = Settings()
    torch.set_num_threads(settings.threads)
    plan = plan_search(search_config("translation", {"target": reference, **_SEARCH}), settings)
    shared, alone = (
        _Evaluations(settings.model_copy(update={"prompt_states_gib": gib}))
        for gib in (settings.prompt_states_gib, 0.0)
    )
    shared.warm_up(plan)
    alone.warm_up(plan)
    search = make_strategy(
        plan.config, plan.units, num_layers=plan.workload.target.num_layers, step_model=None
    )
    full: list[_Cost] = []
    sampled: dict[str, list[tuple[_Cost, _Cost]]] = {way: [] for way in _WAYS}
    while not search.is_finished:
        for skip in search.pending():
            request = plan.request(skip)
            cost = shared.cost(request, "full")
            search.tell(skip, Score(*cost.found))
            if len(full) % _EVERY == 0:
                for way, changes in _WAYS.items():
                    other = alone.cost(request.model_copy(update=changes), way)
                    sampled[way].append((cost, other))
            full.append(cost)
            print(f"  {reference} {len(full)} {skip.label} {cost.seconds:.2f} s", flush=True)
    outcome = search.outcome()
    return {
        "search": {**_SEARCH, "units": plan.config.units, "drafter": plan.config.drafter},
        "max_new_tokens": plan.config.max_new_tokens,
        "num_evaluations": len(full),
        "answer": str(outcome.answer.skip),
        "front": [str(member.skip) for member in outcome.front],
        "full_s": sum(cost.seconds for cost in full),
        "decoded_tokens": sum(cost.tokens for cost in full),
        "ways": {way: _compared(pairs, full) for way, pairs in sampled.items()},
    }


def _compared(pairs: list[tuple[_Cost, _Cost]], full: list[_Cost]) -> dict[str, Any]:
    """Return the seconds of a way over those of the full one, and whether scores are equal."""
    ones = [1] * len(pairs)
    mine, other = (RequestTimes(ones, [pair[side].seconds for pair in pairs]) for side in (0, 1))
    times = speedup_interval(mine, other)
    return {
        "num_sampled": len(pairs),
        "num_equal_scores": sum(one.found == two.found for one, two in pairs),
        "over_full": asdict(times),
        "estimated_s": times.estimate * sum(cost.seconds for cost in full),
    }


class _Evaluations:
    """Evaluates on one loaded target and keeps what it measured in files."""

    def __init__(self, settings: Settings) -> None:
        self._evaluator = ModelEvaluator(settings)
        self._folder = settings.cache_dir / "benchmarks"

    def warm_up(self, plan: Plan) -> None:
        """Load the target and decode a little, unmeasured."""
        short = {"max_new_tokens": 4, "item_ids": plan.split.selection_ids[:2]}
        self._run(plan.request(SkipConfig()).model_copy(update=short))

    def cost(self, request: EvaluationRequest, way: str) -> _Cost:
        """Return what an evaluation cost, measured now or in an earlier run."""
        digest = hashlib.sha256(f"{request.key} {way}".encode()).hexdigest()[:24]
        path = self._folder / f"search-cost-{digest}.json"
        if path.is_file():
            seconds, tokens, found = json.loads(path.read_text())
            return _Cost(seconds, tokens, tuple(found))
        cost = self._run(request)
        write_text(path, json.dumps(astuple(cost)))
        return cost

    def _run(self, request: EvaluationRequest) -> _Cost:
        result = self._evaluator.run(request, lambda: False)
        assert isinstance(result, EvaluationResult)
        score = score_of(result.summary)
        found = (score.acceptance, score.metric, score.nodes)
        return _Cost(result.wall_s, result.summary.num_tokens, found)

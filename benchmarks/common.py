"""What all benchmarks share: models, prompts, paired measurements and result files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from specdec_core.bench.differences import TIE_GAPS
from specdec_core.bench.statistics import RequestTimes, speedup_interval
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.data.split import split
from specdec_core.data.suites import Suite, load_suite
from specdec_core.data.templates import RenderedPrompts, get_template, render_prompts
from specdec_core.decoding import Generation, compare_outputs
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.target import Target
from specdec_core.profiling.hardware import describe_hardware
from specdec_core.provenance import code_version, describe_provenance
from tasks.run_files import write_text
from tasks.runtime import resolve_device

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Bench:
    """One loaded model with the packaged suite of one domain."""

    model: ResolvedModel
    target: Target
    suite: Suite
    item_ids: tuple[str, ...]

    @classmethod
    def load(cls, reference: str, domain: str, num_items: int) -> Bench:
        """Load in bfloat16 with the settings' threads; items are the split's held-out ones."""
        settings = Settings()
        torch.set_num_threads(settings.threads)
        model = resolve_model(reference, settings.cache_dir, print)
        target = load_target(model, dtype="bfloat16", device=resolve_device("auto"))
        suite = load_suite(domain, "builtin")
        return cls(model, target, suite, split(suite, 16, num_items).heldout_ids)

    def prompts(self) -> RenderedPrompts:
        """Token ids of the items' prompts."""
        template = get_template(self.suite.domain, self.target.kind)
        return render_prompts(self.suite.select(self.item_ids), template, self.target.tokenizer)

    def request(self, drafter: str, **changes: Any) -> EvaluationRequest:
        """Return an evaluation request over the bench's items."""
        fields: dict[str, Any] = {
            "target": self.model.reference,
            "target_identity": self.model.identity,
            "dtype": "bfloat16",
            "device": str(self.target.device),
            "drafter": parse_drafter(drafter),
            "suite": "builtin",
            "suite_hash": self.suite.content_hash,
            "domain": self.suite.domain,
            "template_hash": get_template(self.suite.domain, self.target.kind).hash,
            "item_ids": self.item_ids,
            "max_new_tokens": 72,
            "code_version": code_version(),
        }
        return EvaluationRequest(**{**fields, **changes})


@dataclass(frozen=True, slots=True)
class Timed:
    """Tokens and seconds of one request under one method."""

    tokens: int
    seconds: float


def alternate(
    first: Callable[[int], Timed], second: Callable[[int], Timed], num_requests: int
) -> tuple[list[Timed], list[Timed]]:
    """Run two methods request by request, as `take_turns` does."""
    mine, other = take_turns((first, second), num_requests)
    return mine, other


def take_turns(methods: Sequence[Callable[[int], Timed]], num_requests: int) -> list[list[Timed]]:
    """Run methods request by request, changing who goes first; request 0 is warm-up only."""
    results: list[list[Timed]] = [[] for _ in methods]
    for index in range(num_requests):
        for turn in range(len(methods)):
            which = (index + 1 + turn) % len(methods)
            timed = methods[which](index)
            if index:
                results[which].append(timed)
    return results


def order_of(names: Sequence[str], index: int) -> list[str]:
    """Return the order of methods for request `index`: rotated, and backwards for even ones.

    So none of the methods is always first, or always behind the same one.
    """
    shift = index % len(names)
    order = [*names[shift:], *names[:shift]]
    return order if index % 2 else order[::-1]


def ratio(method: Sequence[Timed], baseline: Sequence[Timed]) -> dict[str, Any]:
    """Return the ratio of tokens per second with its paired bootstrap interval."""
    times = [
        RequestTimes([t.tokens for t in side], [t.seconds for t in side])
        for side in (method, baseline)
    ]
    return {
        **asdict(speedup_interval(times[0], times[1])),
        "method_tokens_per_s": sum(times[0].tokens) / sum(times[0].seconds),
        "baseline_tokens_per_s": sum(times[1].tokens) / sum(times[1].seconds),
    }


def certificate(
    device: torch.device, plain: Sequence[Generation], mine: Sequence[Generation]
) -> dict[str, Any]:
    """Return how many outputs are the plain ones, and what made the others differ.

    Args:
        device: Where both were decoded, in bfloat16.
        plain: Plain decoding, with gaps where outputs differ.
        mine: Outputs of a method for the same requests.
    """
    gap = TIE_GAPS["bfloat16"]
    pairs = zip(plain, mine, strict=True)
    found = [compare_outputs(one, other.token_ids, gap) for one, other in pairs]
    differences = [asdict(difference) for difference in found if difference is not None]
    return {
        "device": str(device),
        "num_requests": len(mine),
        "num_identical": len(mine) - len(differences),
        "tie_gap": gap,
        "differences": differences,
    }


def write(name: str, figures: dict[str, Any], device: str = "cpu") -> None:
    """Store one benchmark's figures with where they come from, by temporary name and rename.

    Args:
        name: Of the benchmark, and of its file.
        figures: What was measured.
        device: Where; ``auto`` is what `resolve_device` makes of it.
    """
    document = {
        "benchmark": name,
        "figures": figures,
        "hardware": describe_hardware(torch.device(resolve_device(device))),
        "load_average_at_end": os.getloadavg()[0],
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "provenance": describe_provenance(),
    }
    write_text(RESULTS / f"{name}.json", json.dumps(document, indent=1) + "\n")

"""Drafters against our own autoregressive loop, request by request, and whether output is equal."""

from __future__ import annotations

from typing import Any

from benchmarks.common import Bench, Timed, alternate, certificate, ratio, write
from specdec_core.bench.metrics import count_acceptance
from specdec_core.config.drafters import NoDrafter, parse_drafter
from specdec_core.data.templates import get_template
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.decoding.sequence import Generation
from specdec_core.decoding.timing import synchronizer
from specdec_core.evaluation import StopStrings

_SETTINGS = (("pypi:gemma3-270m", "translation", 48), ("pypi:smollm2-135m", "summarization", 96))
_DRAFTERS = (
    "prompt-lookup:num_tokens=3",
    "token-recycling:num_nodes=7,state_scope=run",
    "token-recycling:num_nodes=3,prompt_bigrams=true,state_scope=run",
    "token-recycling:num_nodes=7,prompt_bigrams=true,state_scope=run",
)
_NUM_REQUESTS = 17


def run() -> None:
    """Measure and store speed-up over `none`, acceptance, and every difference of output."""
    figures = {
        f"{reference} {domain}": _compare(reference, domain, limit)
        for reference, domain, limit in _SETTINGS
    }
    write("drafting", figures, "auto")


def _compare(reference: str, domain: str, limit: int) -> dict[str, Any]:
    bench = Bench.load(reference, domain, _NUM_REQUESTS)
    rendered = bench.prompts()
    view = bench.target.view()
    template = get_template(domain, bench.target.kind)
    stop = StopStrings(bench.target.tokenizer, template) if template.stop_strings else None
    prefix = view.build_prefix(rendered.prefix_ids) if rendered.prefix_ids else None
    results = {}
    for text in _DRAFTERS:
        drafter, plain = make_drafter(parse_drafter(text)), make_drafter(NoDrafter())
        seen: dict[str, list[Generation]] = {"method": [], "plain": []}

        def decode(index: int, side: str, with_: Any, seen: Any = seen) -> Timed:
            [generation] = generate(
                view,
                [rendered.ids[index]],
                [with_],
                max_new_tokens=limit,
                eos_ids=bench.target.eos_ids,
                stop_check=stop,
                prefix=prefix,
                synchronize=synchronizer(bench.target.device),
                record_gaps=side == "plain",
            )
            seen[side].append(generation)
            # The first token comes from the prefill, which both share.
            return Timed(max(1, len(generation.token_ids) - 1), generation.phases.decode)

        method, baseline = alternate(
            lambda i, d=drafter: decode(i, "method", d),
            lambda i, d=plain: decode(i, "plain", d),
            _NUM_REQUESTS,
        )
        results[text] = {
            "speedup_over_autoregressive": ratio(method, baseline),
            **_acceptance(seen["method"]),
            **certificate(bench.target.device, seen["plain"], seen["method"]),
        }
    return results


def _acceptance(generations: list[Generation]) -> dict[str, Any]:
    counts = count_acceptance(generation.trace for generation in generations[1:])
    phases = [generation.phases for generation in generations[1:]]
    total = sum(phase.decode for phase in phases)
    return {
        "acceptance_length": counts.acceptance_length,
        "hit_rate": counts.hit_rate,
        "mean_drafted_nodes": counts.mean_drafted_nodes,
        "share_of_decode_time": {
            name: sum(getattr(phase, name) for phase in phases) / total
            for name in ("draft", "forward", "verify", "commit")
        },
    }

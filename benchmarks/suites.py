"""The prompts that methods are compared on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specdec_core.config.settings import Settings
from specdec_core.data.split import split
from specdec_core.data.suites import load_suite
from specdec_core.data.templates import get_template, render_prompts
from specdec_core.models.target import Target

# Name: the domain whose template asks it, and the file in a folder of public sets.
SUITES: Mapping[str, tuple[str, str]] = {
    "mt_bench": ("chat", "spec_bench/mt_bench.jsonl"),
    "translation": ("translation", "spec_bench/translation.jsonl"),
    "summarization": ("summarization", "spec_bench/summarization.jsonl"),
    "qa": ("qa", "spec_bench/qa.jsonl"),
    "math_reasoning": ("math", "spec_bench/math_reasoning.jsonl"),
    "rag": ("rag", "spec_bench/rag.jsonl"),
    "gsm8k": ("math", "gsm8k/test.jsonl"),
    "humaneval": ("code", "humaneval/test.jsonl"),
    "mbpp": ("code", "mbpp/test.jsonl"),
}
SPEC_BENCH = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids of some items of a suite, and where they came from."""

    ids: tuple[tuple[int, ...], ...]
    item_ids: tuple[str, ...]
    source: str


def load_prompts(name: str, target: Target, num: int) -> Prompts:
    """Return `num` prompts of a suite, chosen by the seeded split.

    The public set is used where it lies (``SPECDEC_DATA``, or ``../shared/data``), else the
    packaged set of the same domain.
    """
    domain, file = SUITES[name]
    folder = Settings().data or Path(__file__).parents[2] / "shared" / "data"
    public = folder / file
    suite = load_suite(domain, str(public) if public.is_file() else "builtin")
    chosen = split(suite, 16, num).heldout_ids
    template = get_template(domain, target.kind)
    rendered = render_prompts(suite.select(chosen), template, target.tokenizer)
    return Prompts(rendered.ids, chosen, "public" if public.is_file() else "packaged")

"""The prompts that methods are compared on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdec_core.config.settings import Settings
from specdec_core.data.split import split
from specdec_core.data.suites import BUILTIN, load_suite
from specdec_core.data.templates import get_template, render_prompts
from specdec_core.models.target import Target

# Name: the domain whose template asks it, and the public set that it is taken from.
SUITES: Mapping[str, tuple[str, str]] = {
    "mt_bench": ("chat", "spec_bench"),
    "translation": ("translation", "spec_bench"),
    "summarization": ("summarization", "spec_bench"),
    "qa": ("qa", "spec_bench"),
    "math_reasoning": ("math", "spec_bench"),
    "rag": ("rag", "spec_bench"),
    "gsm8k": ("math", "gsm8k"),
    "humaneval": ("code", "humaneval"),
    "mbpp": ("code", "mbpp"),
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

    The public set is used where `load_suite` finds it, else the packaged set of the same domain.
    """
    domain, public = SUITES[name]
    suite = load_suite(domain, public, Settings().data)
    chosen = split(suite, 16, num).heldout_ids
    template = get_template(domain, target.kind)
    rendered = render_prompts(suite.select(chosen), template, target.tokenizer)
    return Prompts(rendered.ids, chosen, "packaged" if suite.source == BUILTIN else "public")

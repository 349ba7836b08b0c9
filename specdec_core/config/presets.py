"""Named benchmarks: the fields of BenchmarkConfig that each sets, and what the night measures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from specdec_core.config.ablation import ablation_methods
from specdec_core.config.benchmark import BenchmarkConfig, Preset
from specdec_core.config.build import build_config
from specdec_core.errors import ConfigError

SPEC_BENCH = (
    "chat@spec_bench",
    "translation@spec_bench",
    "summarization@spec_bench",
    "qa@spec_bench",
    "math@spec_bench",
    "rag@spec_bench",
)
"""The six domains of Spec-Bench, each from its own questions alone."""

PAPER_SIZES = (
    "prompt-lookup",
    "token-recycling",
    "backoff-tree:num_nodes=63,num_free=63",
    "suffix-automaton",
    "lookahead",
    "self-draft",
    "ptd",
)
"""Methods with the trees of their papers, dozens of nodes: for processors that verify them free."""

FEW_NODES = (
    "prompt-lookup:num_tokens=5",
    "token-recycling:num_nodes=4,prompt_bigrams=true,state_scope=run",
    "backoff-tree:state_scope=run",
    "suffix-automaton:num_tokens=5,len_threshold=2,fallback_nodes=4,fallback_depth=4,"
    "prompt_bigrams=true,state_scope=run",
    "lookahead:window=3,ngram=3,guesses=2,pool_from_prompt=true",
    "self-draft:branch_num=2,branch_len=3,context_ngram=2",
    "ptd:width=2,depth=2,sub_trees=1,candidates=6,prefill=true",
)
"""The same methods with about five nodes, for two cores that pay for every one; back-off trees have
more where these are likely."""

_SPEC_BENCH_AND_MORE: Mapping[str, Any] = MappingProxyType(
    {
        "target": "pypi:smollm2-135m",
        "domains": (*SPEC_BENCH, "math@gsm8k", "code@humaneval", "code@mbpp"),
        "methods": FEW_NODES,
    }
)
_PRESETS: Mapping[Preset, Mapping[str, Any]] = MappingProxyType(
    {
        "spec-bench": _SPEC_BENCH_AND_MORE,
        "spec-bench-paper": {**_SPEC_BENCH_AND_MORE, "methods": PAPER_SIZES},
        "ptd-ablation": {
            "target": "pypi:smollm2-135m",
            "domains": ("chat@spec_bench#*",),
            "methods": ablation_methods(),
            # Two questions of each category: with more, two cores are busy for over half an hour.
            "num_items": 2,
            "repeats": 1,
        },
    }
)

NIGHTLY: Mapping[str, Any] = MappingProxyType(
    {
        "target": "pypi:gemma3-270m",
        "domains": ("translation", "qa"),
        "num_items": 8,
        "max_new_tokens": 48,
        "baseline": "nightly",
    }
)
"""The fixed sweep of every night."""


def benchmark_config(
    given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> BenchmarkConfig:
    """Return the benchmark of the fields in `given` that are not None.

    Others are those of the preset named there, then of `defaults`, then the record's own.

    Raises:
        ConfigError: for an unknown preset or field, or a value outside its range.
    """
    preset = given.get("preset")
    if preset is not None and preset not in _PRESETS:
        raise ConfigError(f"preset {preset!r} is unknown: choose one of {', '.join(_PRESETS)}")
    chosen = _PRESETS[preset] if preset is not None else {}
    return build_config(BenchmarkConfig, {**(defaults or {}), **chosen}, given)

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

_PRESETS: Mapping[Preset, Mapping[str, Any]] = MappingProxyType(
    {
        "spec-bench": {
            "target": "pypi:smollm2-135m",
            "domains": (
                *SPEC_BENCH,
                "math@gsm8k",
                "code@humaneval",
                "code@mbpp",
            ),
            "methods": (
                "prompt-lookup",
                "token-recycling",
                "suffix-automaton",
                "lookahead",
                "self-draft",
                "ptd",
            ),
        },
        "ptd-ablation": {
            "target": "pypi:smollm2-135m",
            "domains": ("chat@spec_bench#*",),
            "methods": ablation_methods(),
            "num_items": 4,
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

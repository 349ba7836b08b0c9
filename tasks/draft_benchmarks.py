"""The benchmarks that evaluate a draft, and what is known of them before there is a draft."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.build import build_config
from specdec_core.config.draft_evaluation import DraftedShape, DraftEvaluationConfig
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.settings import Settings
from specdec_core.data.suites import load_suite
from tasks.cells import BASELINE_METHOD
from tasks.grid import Grid, make_grid
from tasks.prepare import Workload, prepare_target, workload_of

if TYPE_CHECKING:
    from specdec_core.training.reference import DraftForm


def methods_of(
    kind: DraftForm, folder: Path, config: DraftEvaluationConfig
) -> dict[DraftedShape, str]:
    """Return the canonical drafter texts by shape; the folder need not exist yet.

    Raises:
        ConfigError: if an option is outside its range, or the folder's name has a comma.
    """
    from tasks.draft_expectation import drafter_of  # torch, which a stored evaluation needs not

    return {
        shape: format_drafter(parse_drafter(drafter_of(kind, folder, shape, config)))
        for shape in config.shapes
    }


def benchmark_of(
    config: DraftEvaluationConfig, methods: Mapping[DraftedShape, str], temperature: float
) -> BenchmarkConfig:
    """Return the benchmark of one temperature.

    Raises:
        ConfigError: if an option is outside its range.
    """
    sampling = f"temperature={temperature},seed={config.seed}" if temperature else ""
    asked = {
        "target": config.target,
        "methods": tuple(methods.values()) or (BASELINE_METHOD,),
        "domains": config.domains,
        "num_items": config.num_items,
        "max_new_tokens": config.max_new_tokens,
        "repeats": config.repeats,
        "sampling": sampling,
        "dtype": config.dtype,
        "session": config.session,
    }
    return build_config(BenchmarkConfig, asked)


def plain_grid(config: DraftEvaluationConfig, settings: Settings) -> Grid:
    """Return the rows of an evaluation without its draft, at its first temperature.

    The target is looked at once for all rows: what is packaged is read whole each time.

    Raises:
        ConfigError: if target, type, domains or suites cannot be used.
    """
    known = cache(prepare_target)

    def prepare(
        target: str, domain: str, suite: str | None, dtype: str, settings: Settings
    ) -> Workload:
        loaded = load_suite(domain, suite, settings.data)
        return workload_of(known(target, settings, dtype), loaded, settings)

    return make_grid(benchmark_of(config, {}, config.temperatures[0]), settings, prepare)

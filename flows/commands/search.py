"""`specdec search`, `compare` and `sensitivity` in this process, without any service."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from typing import Any

from flows import drivers
from flows.commands.options import given_flags
from flows.commands.output import emit
from flows.commands.parser import COMPARE_LEAVES_OUT, SENSITIVITY_LEAVES_OUT
from flows.commands.progress import ProgressDisplay
from flows.report import links, render
from flows.services.state import running_state
from flows.sweep_tables import render_sweep
from specdec_core.config.domains import compare_config, search_config, sensitivity_config
from specdec_core.config.search import CompareConfig, SearchConfig, SensitivityConfig
from specdec_core.config.settings import Settings


def search(args: Namespace) -> int:
    """Run a search and show its report; no gain is a result, not a failure."""
    config = search_config(args.domain, given_flags(args, SearchConfig, {"domain"}))
    settings = Settings()
    with ProgressDisplay() as display:
        report = drivers.search(
            config,
            settings,
            log=display.say,
            progress=display.follow,
            should_stop=args.is_interrupted,
            retries_failed=args.retry_failed,
        )
    found = links(report, running_state(settings.home_dir))
    emit(args, report, lambda: render(report, found))
    return 0


def compare(args: Namespace) -> int:
    """Search with several strategies and show how their answers compare."""
    given = _given(args, COMPARE_LEAVES_OUT, CompareConfig)
    return _sweep(args, compare_config(args.domain, given))


def sensitivity(args: Namespace) -> int:
    """Search at several tolerances and show what each finds and costs."""
    given = _given(args, SENSITIVITY_LEAVES_OUT, SensitivityConfig)
    return _sweep(args, sensitivity_config(args.domain, given))


def _given(
    args: Namespace, left_out: Collection[str], config: type[CompareConfig | SensitivityConfig]
) -> dict[str, Any]:
    shared = given_flags(args, SearchConfig, {"domain", *left_out})
    return {**shared, **given_flags(args, config, {"search"})}


def _sweep(args: Namespace, config: CompareConfig | SensitivityConfig) -> int:
    settings = Settings()
    with ProgressDisplay() as display:
        report = drivers.sweep(
            config,
            settings,
            log=display.say,
            progress=display.follow,
            should_stop=args.is_interrupted,
            retries_failed=args.retry_failed,
        )
    emit(args, report, lambda: render_sweep(report))
    return 0

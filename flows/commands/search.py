"""`specdec search`: the search in this process, without any service."""

from __future__ import annotations

from argparse import Namespace

from flows import drivers
from flows.commands.options import given_flags
from flows.commands.output import emit
from flows.commands.progress import ProgressDisplay
from flows.report import links, render
from flows.services.state import running_state
from specdec_core.config.domains import search_config
from specdec_core.config.search import SearchConfig
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

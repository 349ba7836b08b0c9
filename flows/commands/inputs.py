"""`specdec data` and `specdec models`: what a search is made from."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from pathlib import Path

from rich.console import RenderableType

from flows.commands.output import emit, note, table
from flows.method_table import feature_table, method_table, option_table
from specdec_core.config.domains import DOMAINS, search_defaults
from specdec_core.config.settings import Settings
from specdec_core.data.suites import Suite, domain_of, load_suite
from specdec_core.errors import ConfigError


def list_data(args: Namespace) -> int:
    """Show the suite that each domain would use with the settings as they are."""
    settings = Settings()
    suites = [_describe(load_suite(domain, None, settings.data)) for domain in DOMAINS]
    emit(args, suites, lambda: _suite_table(suites))
    return 0


def check_data(args: Namespace) -> int:
    """Read a suite file whole; the first fault is reported with file, line and reason."""
    domain = args.domain or domain_of(Path(args.file))
    suite = _describe(load_suite(domain, args.file))
    emit(args, suite, lambda: _suite_table([suite]))
    return 0


def methods(args: Namespace) -> int:
    """Show every drafting method, what each can be combined with, or the options of one."""
    if args.method and args.features:
        raise ConfigError("--features shows all methods: leave out the method, or the flag")
    overview = feature_table if args.features else method_table
    view = option_table(args.method) if args.method else overview()
    emit(args, view.to_records(), view.to_rich)
    return 0


def list_models(args: Namespace) -> int:
    """Show the models that come from the package index."""
    from specdec_core.models.packaged import PACKAGED

    domains: dict[str, list[str]] = {}
    for domain in DOMAINS:
        domains.setdefault(search_defaults(domain)["target"], []).append(domain)
    models = [
        {
            "reference": f"pypi:{name}",
            "licence": model.licence,
            "install": model.install,
            "default_of": domains.get(f"pypi:{name}", []),
        }
        for name, model in PACKAGED.items()
    ]
    rows = [(m["reference"], ", ".join(m["default_of"]), m["licence"]) for m in models]
    emit(args, models, lambda: table("models", ("reference", "default of", "licence"), rows))
    return 0


def prepare_model(args: Namespace) -> int:
    """Find models, convert packaged ones, and check that the engine runs them."""
    from specdec_core.models.reference import resolve_model

    found = [resolve_model(reference, Settings().cache_dir, note) for reference in args.refs]
    answer = [{**dataclasses.asdict(model), "folder": str(model.folder)} for model in found]
    rows = [(model.reference, model.kind, model.identity[:12], model.folder) for model in found]
    columns = ("reference", "kind", "identity", "folder")
    emit(args, answer, lambda: table("models", columns, rows))
    return 0


def _describe(suite: Suite) -> dict[str, str | int | None]:
    return {
        "domain": suite.domain,
        "name": suite.name,
        "items": len(suite.items),
        "scored_items": len(suite.scored_items),
        "metric": suite.metric,
        "content_hash": suite.content_hash,
        "source": suite.source,
    }


def _suite_table(suites: list[dict[str, str | int | None]]) -> RenderableType:
    columns = ("domain", "name", "items", "scored_items", "metric", "source")
    rows = [[suite[column] for column in columns] for suite in suites]
    return table("suites", columns, rows)

"""From records to HTML with templates that escape every value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dashboards import charts, links, training, training_views, views
from dashboards.assets import asset_urls
from dashboards.comparison import comparisons, result_of
from dashboards.leaderboard import Leaderboard, leaderboard_table, speedup_figure
from dashboards.lifecycle import transitions_table, verifications_table
from dashboards.links import Services
from dashboards.outputs import LEGEND, Output, tokens_table
from dashboards.queries import Detail, Overview
from dashboards.results import control_table, results_table
from dashboards.summary import SearchSummary
from dashboards.sweeps import SWEEP_TABLES, changes_figure
from dashboards.tables import (
    ablation_table,
    depth_table,
    front_table,
    guards_table,
    heldout_table,
    history_table,
    level_tables,
)
from specdec_core.config.dtype import type_label
from specdec_core.skip import SkipConfig

_MAX_VALUE = 400
_FEATURED_PROVENANCE = ("commit", "is_dirty", "code_version", "command")


def overview_page(overview: Overview, services: Services) -> str:
    """Return the page."""
    values: dict[str, Any] = {"overview": overview, "services": services}
    detail = overview.detail
    if detail is not None:
        values |= {
            "run_links": links.run_links(services, detail),
            "origin": origin(detail),
            "parameters": _readable(detail.run.config),
            "history": history_table(detail),
            "transitions": transitions_table(detail),
            "verifications": verifications_table(detail),
        }
    if detail is not None and detail.search is not None:
        values |= _search_values(detail, detail.search)
    if detail is not None and detail.sweep is not None:
        figure = changes_figure(detail.sweep)
        values |= {
            "figures": {"changes": charts.to_json(figure) if figure else None},
            "tables": {name: table(detail.sweep) for name, table in SWEEP_TABLES.items()},
        }
    return _environment().get_template("page.html").render(values)


def leaderboard_page(board: Leaderboard | None) -> str:
    """Return the page of a benchmark run."""
    values: dict[str, Any] = {"board": board}
    if board is not None:
        figure = speedup_figure(board.cells)
        values |= {
            "table": leaderboard_table(board.cells),
            "figure": charts.to_json(figure) if figure else None,
            "csv_url": links.leaderboard_csv(board.run.id),
            "notes": board.run.summary.get("notes", []),
        }
    return _environment().get_template("leaderboard.html").render(values)


def training_page(page: training.TrainingPage, services: Services) -> str:
    """Return the page of draft training."""
    figures = {
        "curve": training_views.curve_figure(page),
        "depth": training_views.depth_figure(page),
    }
    values: dict[str, Any] = {
        "page": page,
        "figures": {name: charts.to_json(each) if each else None for name, each in figures.items()},
        "tables": {name: table(page) for name, table in training_views.TRAINING_TABLES.items()},
        "facts": _training_facts(page),
        "links": training.training_links(page, services),
    }
    return _environment().get_template("training.html").render(values)


def _training_facts(page: training.TrainingPage) -> dict[str, str]:
    found, one = page.training, page.checkpoint
    facts = {
        "commit": _value(page.run.provenance.get("commit")) if page.run else "",
        "command": _value(page.run.provenance.get("command")) if page.run else "",
        "hardware": found.hardware if found else "",
        "target identity": found.target_identity if found else "",
        "data": found.data_hash if found else "",
        "template hash": found.template_hash if found else "",
        "files": one.folder if one else "",
        "content hash": one.content_hash if one else "",
        "exported to": ", ".join(one.exports) if one else "",
    }
    return {name: text for name, text in facts.items() if text} | (
        _readable(found.config) if found else {}
    )


def output_page(output: Output | None) -> str:
    """Return the page of one output, token by token."""
    values: dict[str, Any] = {"output": output, "legend": LEGEND}
    if output is not None and output.cell is not None and output.sample is not None:
        values |= {
            "choices": {
                name: list(dict.fromkeys(getattr(cell, name) for cell in output.cells))
                for name in ("domain", "drafter")
            },
            "table": tokens_table(output),
            "csv_url": links.output_csv(output.cell, output.sample.item_id),
        }
    return _environment().get_template("outputs.html").render(values)


def error_page(status: HTTPStatus, detail: str) -> str:
    """Return the page that tells what went wrong."""
    return _environment().get_template("error.html").render(status=status, detail=detail)


def origin(detail: Detail) -> dict[str, str]:
    """Return where the figures of a run come from, as names and values for people."""
    run, search, profile = detail.run, detail.search, detail.profile
    given = run.provenance
    found = {
        "commit": _value(given.get("commit")) + (" + changes" if given.get("is_dirty") else ""),
        "code version": _value(given.get("code_version")),
        "command": _value(given.get("command")),
        "hardware": _value(profile.hardware if profile else None),
        "target": _value(search.target if search else run.config.get("target")),
        "target identity": _value(profile.target_identity if profile else None),
        "suite": _value(search.suite if search else None),
        "suite hash": _value(profile.suite_hash if profile else None),
        "template hash": _value(profile.template_hash if profile else None),
        "run": run.id,
        "started": views.moment(run.created_at),
        "evaluations used": str(detail.num_evaluations),
    }
    rest = {name: each for name, each in given.items() if name not in _FEATURED_PROVENANCE}
    if search is not None and search.costs is not None:
        costs = search.costs
        found["work"] = (
            f"{costs.num_evaluated} evaluations done, {costs.num_memoised} found in the store, "
            f"{costs.num_failed} failed, {costs.num_dropped} sets dropped unfinished; "
            f"{views.seconds(costs.worker_s)} in workers, "
            f"{views.seconds(costs.wall_s)} in all"
        )
        found["log file"] = search.log_file
    if search is not None and search.license_note:
        found["licence"] = search.license_note
    return {name: text for name, text in (found | _readable(rest)).items() if text}


def _search_values(detail: Detail, search: SearchSummary) -> dict[str, Any]:
    figures = {
        "ablation": charts.ablation_figure(search) if search.ablation else None,
        "front": charts.front_figure(search) if search.levels else None,
        "heldout": charts.interval_figure(search) if search.heldout else None,
        "depth": charts.depth_figure(detail.depth) if detail.depth else None,
    }
    return {
        # None where there is nothing to draw: templates ask for every name.
        "figures": {name: charts.to_json(each) if each else None for name, each in figures.items()},
        "comparisons": comparisons(search),
        "tables": {
            "results": results_table(search),
            "heldout": heldout_table(search),
            "control": control_table(search),
            "ablation": ablation_table(search),
            "front": front_table(search),
            "guards": guards_table(search),
            "depth": depth_table(detail),
        },
        "level_tables": level_tables(search),
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dashboards", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "assets": asset_urls(),
        "csv_url": links.csv_url,
        "profile_page": links.profile_page,
        "profile_json": links.profile_json,
        "run_page": links.run_page,
        "leaderboard_page": links.leaderboard_page,
        "output_page": links.output_page,
        "training_page_url": training.training_page_url,
        "training_csv": training.training_csv,
        "result_of": result_of,
    }
    environment.filters |= {
        "number": views.number,
        "percent": views.percent,
        "interval": views.interval_text,
        "change": views.change_text,
        "moment": views.moment,
        "type_label": type_label,
        "skip_label": lambda skip: SkipConfig.parse(skip).label,
    }
    return environment


def _readable(values: Mapping[str, Any]) -> dict[str, str]:
    return {name.replace("_", " "): text for name, each in values.items() if (text := _value(each))}


def _value(value: object) -> str:
    """A stored value as text; long ones are cut, none is empty."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]} …"

"""Tables of docs/results.md, written from the exported searches and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.exported import Document, Documents, ExportedRuns, rows_of, table, table_of

SEARCHES = ExportedRuns(RESULTS / "searches")
_KINDS = {"tss-compare": "Strategies", "tss-sensitivity": "Tolerances"}


def result_tables(documents: Documents) -> str:
    """Return every table of the page: by target, then what joins several runs."""
    parts = []
    for target in dict.fromkeys(_target(each) for each in documents.values() if "kind" in each):
        own = {name: each for name, each in documents.items() if _target(each) == target}
        parts += [f"## {target}\n", *_of_target(own)]
    joint = {name: each for name, each in documents.items() if "comparison" in each}
    if joint:
        parts += ["## Several runs beside each other\n", *_comparisons(joint)]
    return "\n".join(parts)


def _of_target(documents: Documents) -> Iterator[str]:
    searches = {name: each for name, each in documents.items() if each["kind"] == "tss-search"}
    if searches:
        yield "### What was searched\n"
        yield table(_SETTINGS, [_settings(name, each) for name, each in searches.items()])
        yield "### Results on held-out items\n"
        yield _joined(searches, "results")
        for key, title in (
            ("cases", "Held-out items by their score against dense"),
            ("negative control", "The same set in another domain"),
        ):
            text = _joined(searches, key)
            if text:
                yield f"### {title}\n"
                yield text
        yield "### Single units and all evaluated sets\n"
        yield from (SEARCHES.pictures(name, ("ablation", "pareto")) for name in searches)
    for kind, title in _KINDS.items():
        for name, each in documents.items():
            if each["kind"] == kind:
                yield f"### {title}: {SEARCHES.link(name, each['search'])}\n"
                yield f"{each['figures']['headline']}.\n"
                yield table_of(each["figures"]["tables"]["answers"])
                changes = each["figures"]["tables"].get("changes")
                if changes is not None:
                    yield table_of(changes)


def _comparisons(documents: Documents) -> Iterator[str]:
    for name, each in documents.items():
        yield f"### {SEARCHES.link(name, name)}\n"
        drafters = each["tables"].get("drafters")
        if drafters is not None:
            yield table_of(drafters)
        stems = SEARCHES.plots(name)
        if stems:
            yield SEARCHES.pictures(name, stems)


_SETTINGS = (
    "search",
    "strategy",
    "drafter",
    "units",
    "beam, depth",
    "tolerances: acceptance, metric",
    "items: selection, held-out",
    "output limit",
    "sets scored",
    "evaluations: new, stored",
    "minutes",
    "finished",
)


def _settings(name: str, document: Document) -> Sequence[str]:
    figures, config = document["figures"], document["figures"]["config"]
    costs = figures["costs"]
    tolerances = [_tolerance(config, part) for part in ("acceptance", "metric")]
    return (
        SEARCHES.link(name, document["search"]),
        config["strategy"],
        f"`{config['drafter']}`",
        config["units"],
        f"{config['beam']}, {config['depth']}",
        ", ".join(f"{100 * each:+g} %" for each in tolerances),
        f"{len(figures['selection_ids'])}, {len(figures['heldout_ids'])}",
        f"{config['max_new_tokens']} tokens",
        str(figures["num_configurations"]),
        f"{costs['num_evaluated']}, {costs['num_memoised']}",
        f"{costs['wall_s'] / 60:.1f}",
        document["finished_at"][:10],
    )


def _tolerance(config: Mapping[str, Any], part: str) -> float:
    own: float | None = config[f"tolerance_{part}"]
    return float(config["tolerance"]) if own is None else own


def _joined(documents: Documents, key: str) -> str:
    """The same table of several runs as one; the first cell of a row leads to its file."""
    head: list[str] = []
    rows: list[list[str]] = []
    for name, each in documents.items():
        found = each["figures"]["tables"].get(key)
        if found is not None and found["rows"]:
            head = found["columns"]
            rows += [[SEARCHES.link(name, first), *rest] for first, *rest in rows_of(found)]
    return table(head, rows) if rows else ""


def _target(document: Document) -> str | None:
    return document["figures"]["target"] if "kind" in document else None

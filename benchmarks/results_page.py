"""Tables of docs/results.md, written from the exported searches and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS

SEARCHES = RESULTS / "searches"
_HERE = "../benchmarks/results/searches"
_KINDS = {"tss-compare": "Strategies", "tss-sensitivity": "Tolerances"}

Document = Mapping[str, Any]
Documents = Mapping[str, Document]


def load_searches(folder: Path = SEARCHES) -> dict[str, Document]:
    """Return the exported runs and comparisons by the stem of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


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
        yield from (_pictures(name, ("ablation", "pareto")) for name in searches)
    for kind, title in _KINDS.items():
        for name, each in documents.items():
            if each["kind"] == kind:
                yield f"### {title}: {_link(name, each['search'])}\n"
                yield f"{each['figures']['headline']}.\n"
                yield _table_of(each["figures"]["tables"]["answers"])
                changes = each["figures"]["tables"].get("changes")
                if changes is not None:
                    yield _table_of(changes)


def _comparisons(documents: Documents) -> Iterator[str]:
    for name, each in documents.items():
        yield f"### {_link(name, name)}\n"
        drafters = each["tables"].get("drafters")
        if drafters is not None:
            yield _table_of(drafters)
        stems = sorted(path.stem for path in (SEARCHES / name).glob("*.png"))
        if stems:
            yield _pictures(name, stems)


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
        _link(name, document["search"]),
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
            rows += [[_link(name, first), *rest] for first, *rest in _rows(found)]
    return table(head, rows) if rows else ""


def _table_of(found: Document) -> str:
    return table(found["columns"], _rows(found))


def _rows(found: Document) -> list[list[str]]:
    return [row.split(" | ") for row in found["rows"]]


def _pictures(name: str, stems: Sequence[str]) -> str:
    shown = [stem for stem in stems if (SEARCHES / name / f"{stem}.png").is_file()]
    return "\n".join(f"![{name}: {stem}]({_HERE}/{name}/{stem}.png)" for stem in shown) + "\n"


def _link(name: str, text: str) -> str:
    return f"[{text}]({_HERE}/{name}.md)"


def _target(document: Document) -> str | None:
    return document["figures"]["target"] if "kind" in document else None

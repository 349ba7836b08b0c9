"""Tables of docs/training-results.md, written from the exported trainings and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.exported import (
    Document,
    Documents,
    ExportedRuns,
    records_of,
    rows_of,
    table,
    table_of,
)

TRAININGS = ExportedRuns(RESULTS / "trainings")
NOTHING = "No training is stored here yet.\n"


def training_tables(documents: Documents, runs: ExportedRuns = TRAININGS) -> str:
    """Return every table of the page: trainings, comparisons of losses, benchmarks of drafters.

    Args:
        documents: Exported runs by name.
        runs: The folder that they are of.

    Raises:
        ValueError: for a document of another kind; names it.
    """
    kinds = {name: _kind_of(name, each) for name, each in documents.items()}
    parts: list[str] = []
    for kind, section in _SECTIONS.items():
        own = {name: each for name, each in documents.items() if kinds[name] == kind}
        if own:
            parts += section(own, runs)
    return "\n".join(parts) or NOTHING


def _kind_of(name: str, document: Document) -> str:
    kind = str("benchmark" if "benchmark" in document else document.get("kind", "unknown"))
    if kind not in _SECTIONS:
        raise ValueError(
            f"{name}.json is of kind {kind}, but the page of trainings shows "
            f"{', '.join(_SECTIONS)}: keep it in another folder"
        )
    return kind


def _trainings(documents: Documents, runs: ExportedRuns) -> Iterator[str]:
    yield "## Trainings\n"
    yield table(_TRAINING, [_training_row(name, each, runs) for name, each in documents.items()])


_TRAINING = (
    "training",
    "target",
    "draft",
    "loss",
    "seed",
    "samples",
    "response tokens",
    "steps, epochs",
    "expected length before",
    "of the checkpoint kept",
    "chosen by",
    "realised length",
    "state",
)


def _training_row(name: str, document: Document, runs: ExportedRuns) -> list[str]:
    figures = document["figures"]
    said = dict(row.split(" | ", 1) for row in figures["tables"]["training"]["rows"])
    return [
        runs.link(name, document["training"]),
        said["target"],
        f"`{said['draft']}`",
        said["loss"],
        str(figures["config"]["train"]["seed"]),
        said["prompts, samples"].rpartition(", ")[2],
        said["response tokens"],
        said["steps, epochs"],
        said["expected acceptance length before"],
        said["the same of the checkpoint kept"],
        said["checkpoint chosen by"].partition(" ")[0],
        said["realised acceptance length"],
        said["state"].partition(":")[0],
    ]


def _comparisons(documents: Documents, runs: ExportedRuns) -> Iterator[str]:
    for name, each in documents.items():
        figures = each["figures"]
        title = f"`{figures['draft']}` of {figures['target']}"
        yield f"## Losses for {title}: {runs.link(name, each['comparison'])}\n"
        yield f"{figures['headline']}. {_setup(figures['config'])}.\n"
        yield from _of_comparison(figures)
        plots = runs.plots(name)
        if plots:
            yield runs.pictures(name, plots)
        if figures["notes"]:
            yield "\n".join(f"- {note}" for note in figures["notes"]) + "\n"


def _setup(config: Mapping[str, Any]) -> str:
    train, evaluation = config["base"]["train"], config["base"]["evaluation"]
    epochs = f"{train['num_epochs']} epoch" + "s" * (train["num_epochs"] > 1)
    return (
        f"{train['data']['num_prompts']} prompts, {epochs}, windows and chains "
        f"of {train['gamma']} tokens; {evaluation['num_items']} prompts per domain, outputs of at "
        f"most {evaluation['max_new_tokens']} tokens"
    )


def _of_comparison(figures: Mapping[str, Any]) -> Iterator[str]:
    tables = figures["tables"]
    yield f"### {tables['trainings']['title']}\n"
    # The last column is the id of a run in the store, which is of no use elsewhere.
    yield table(tables["trainings"]["columns"][:-1], list(_by_loss(rows_of(tables["trainings"]))))
    if figures["rates"]:
        yield f"### {tables['rates']['title']}: expected acceptance length, the one taken in bold\n"
        yield _rates(figures["rates"])
    settings = dict.fromkeys((cell["shape"], cell["temperature"]) for cell in figures["cells"])
    changes = [tables[name] for name in ("start", "changes") if name in tables]
    for shape, temperature in settings:
        found = tables[f"{shape}-t{temperature:g}"]
        yield f"### {found['title']}\n"
        yield table_of(found)
        setting = {"shape": shape, "T": f"{temperature:g}"}
        for found in changes:
            own = [row for row in records_of(found) if setting.items() <= row.items()]
            if own:
                yield f"{found['title']}:\n"
                yield _picked(own, _CHANGES)


_CHANGES = {
    name: name for name in ("loss", "against", "prompts", "accepted tokens", "with bonus", "reads")
}


def _by_loss(rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Join the trainings of a loss in one row, by seed; what all seeds share stands once."""
    grouped: dict[str, list[list[str]]] = {}
    for loss, *values, _run in rows:
        grouped.setdefault(loss, []).append(values)
    for loss, seeds in grouped.items():
        columns = [list(column) for column in zip(*seeds, strict=True)]
        joined = (", ".join(found if len(set(found)) > 1 else found[:1]) for found in columns)
        yield [loss, *joined]


def _rates(trials: Iterable[Mapping[str, Any]]) -> str:
    """What every loss reached at every learning rate."""
    tried: dict[str, dict[float, str]] = {}
    for trial in trials:
        length = trial["expected_length"]
        text = "failed" if length is None else f"{length:.3f}"
        if trial.get("best_step") == 0:
            text += " (start)"
        shown = f"**{text}**" if trial["is_chosen"] else text
        tried.setdefault(trial["loss"], {})[trial["learning_rate"]] = shown
    rates = sorted({rate for found in tried.values() for rate in found})
    rows = [[loss, *(found.get(rate, "-") for rate in rates)] for loss, found in tried.items()]
    return table(["loss", *(f"{rate:g}" for rate in rates)], rows)


def _benchmarks(documents: Documents, runs: ExportedRuns) -> Iterator[str]:
    yield "## Drafters in the decode loop\n"
    for name, each in documents.items():
        tables = each["figures"]["tables"]
        yield f"### {runs.link(name, each['benchmark'])}\n"
        yield f"{each['figures']['headline']}.\n"
        for names in (_CELLS, _OVERALL):
            for title, found in tables.items():
                if names.keys() - {_COST} <= set(found["columns"]):
                    yield f"{title}:\n"
                    yield _picked(map(_with_cost, records_of(found)), names)


def _with_cost(record: Mapping[str, str]) -> Mapping[str, str]:
    """Add how long a step takes in plain steps: its committed tokens over the speed-up."""
    ratio, found, _ = record.get(_SPEEDUP, "").partition("x")
    cost = f"{float(record['acceptance length']) / float(ratio):.2f}" if found else "-"
    return {**record, _COST: cost}


_SPEEDUP, _COST = "speed-up [95% interval]", "plain steps per step"
_CELLS = {
    "domain": "domain",
    "drafter": "method",
    "acceptance length": "acceptance length",
    "tokens/s": "tokens/s",
    _SPEEDUP: "tokens/s over autoregressive [95 %]",
    _COST: _COST,
    "identical output": "identical output",
}
_OVERALL = {
    "drafter": "method",
    "domains": "domains",
    "acceptance length": "acceptance length",
    "mean speed-up of domains [95% interval]": "mean tokens/s over autoregressive [95 %]",
    "outputs": "outputs",
}


def _picked(records: Iterable[Mapping[str, str]], names: Mapping[str, str]) -> str:
    """Some columns of a table under other names."""
    return table(list(names.values()), [[each[column] for column in names] for each in records])


_Section = Callable[[Documents, ExportedRuns], Iterable[str]]
_SECTIONS: Mapping[str, _Section] = MappingProxyType(
    {"train-drafter": _trainings, "compare-losses": _comparisons, "benchmark": _benchmarks}
)

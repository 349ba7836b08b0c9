"""The model card of an exported checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from specdec_core.drafts.specs import Provenance
from specdec_core.models.reference import ModelRef, ResolvedModel


class CardFigure(NamedTuple):
    """One row of the card's table, as text."""

    name: str
    dense: str
    sparse: str
    change: str


def model_card(
    model: ResolvedModel,
    exported: Mapping[str, Any],
    figures: Iterable[CardFigure],
    notes: Iterable[str],
) -> str:
    """Return the card of what `ExportedCheckpoint` describes, with what was measured."""
    check = exported["check"]
    lines = [
        *front_matter(model, "layer-skip"),
        f"# {model.reference} without {exported['skip']}",
        "",
        f"Made by specdec-lab from `{model.reference}` (content {model.identity[:12]}). These "
        "files are modified: parts of the model are left out, nothing was trained afterwards.",
        "",
        *_left_out(exported),
        "",
        f"Checked when it was written, after prompts of {_and(check['prompt_tokens'])} tokens in "
        f"float32: logits equal those of the sparse view bit by bit in the same engine, and "
        f"those of `transformers` differ by at most {check['largest_difference']:.2g} of "
        f"{check['largest_logit']:.3g}.",
    ]
    if not check["crosses_windows"]:
        lines.append("No prompt was longer than the sliding windows.")
    lines += ["", *figure_table(list(figures), ("dense", "this")), *notes, *licence(model)]
    return "\n".join(lines)


def front_matter(model: ResolvedModel, tag: str) -> list[str]:
    """Return the head of a card of something made from `model`."""
    ref = ModelRef.parse(model.reference)
    base = [f"base_model: {ref.name}"] if ref.scheme == "hf" else []
    return ["---", "library_name: transformers", *base, "tags:", f"- {tag}", "---", ""]


def trained_on(origin: Provenance) -> str:
    """Return what a draft's card says of its training texts."""
    return (
        f"Trained on data {origin.data_hash[:12] or 'unknown'} with chat template "
        f"{origin.template_hash[:12] or 'unknown'}; ask the target with the same template."
    )


def licence(model: ResolvedModel) -> list[str]:
    """Return the end of the card of something made from `model`."""
    terms = model.licence or "The terms of the original model apply to these files as well"
    return ["", "## Licence", "", f"{terms}.", ""]


def _left_out(exported: Mapping[str, Any]) -> list[str]:
    blocks, halves = exported["removed_blocks"], exported["zeroed_halves"]
    lines = []
    if blocks:
        lines.append(
            f"- Removed blocks of the original (0-based): {_and(blocks)}; {exported['num_layers']} "
            "are left, numbered anew, each with its own attention type."
        )
    if halves:
        lines.append(
            f"- Skipped halves (a attention, m MLP): {_and(halves)}. Plain `transformers` cannot "
            "leave half a block out, so their output projections are zero: the outputs are those "
            "of the sparse model, the time and memory of these halves are not saved."
        )
    return lines


def figure_table(figures: list[CardFigure], sides: tuple[str, str]) -> list[str]:
    """Return what was measured as a table.

    Args:
        figures: Its rows.
        sides: Names of both columns of values.
    """
    if not figures:
        return ["Nothing was measured for this card.", ""]
    names = f"| figure | {sides[0]} | {sides[1]} | change |"
    head = ["## Measured", "", names, "| --- | --- | --- | --- |"]
    return [*head, *(f"| {' | '.join(figure)} |" for figure in figures), ""]


def _and(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))

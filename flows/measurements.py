"""Calibrations for people: tables for the terminal and for Prefect's pages."""

from __future__ import annotations

from db.schemas import CalibrationRecord
from flows.views import ABSENT, TableView, number
from specdec_core.config.dtype import type_label


def curve_table(record: CalibrationRecord) -> TableView:
    """Step time over the number of nodes per forward, and what a node adds."""
    base = record.curve[0].median_s
    return TableView(
        f"Step time of {record.target} ({type_label(record.dtype)}, {record.hardware}), "
        f"{record.context_tokens} tokens of context",
        ("nodes per forward", "median, ms", "relative to the first", "repeats"),
        tuple(
            (
                str(point.num_nodes),
                number(1000 * point.median_s, 2),
                f"{point.median_s / base:.2f}x",
                str(len(point.seconds)) if point.seconds else ABSENT,
            )
            for point in record.curve
        ),
    )


def layer_table(record: CalibrationRecord) -> TableView:
    """How little each half of each layer changes its input: 1 is nothing at all."""
    return TableView(
        "Layers: cosine of input and output",
        ("layer", "attention half", "MLP half"),
        tuple(
            (
                str(layer.layer),
                number(layer.attention_similarity, 4),
                number(layer.mlp_similarity, 4),
            )
            for layer in record.layers
        ),
    )

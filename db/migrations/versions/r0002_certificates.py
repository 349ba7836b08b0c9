"""Benchmark cells get their certificate, sampling rule and marks; evidence moves out of figures."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLE = "specdec_benchmark_cells"
ADDED = ("sampling", "is_lossless", "is_synthetic", "certificate")
_COUNTS = ("num_items", "num_identical", "num_ties", "num_defects")
# The logit gaps that counted as ties when these cells were measured.
_TIE_GAPS = {"bfloat16": 0.25, "float16": 2.0**-5, "float32": 1e-3, "float64": 1e-9}
# What the first schema knows of a cell's figures beside the evidence.
_FIRST_FIGURES = (
    *("num_items", "num_tokens", "acceptance_length", "hit_rate", "metric"),
    *("tokens_per_s", "speedup", "peak_memory_bytes"),
)
_CELLS = sa.table(
    TABLE,
    sa.column("id", sa.Integer()),
    sa.column("dtype", sa.String()),
    sa.column("sampling", sa.String()),
    sa.column("is_lossless", sa.Boolean()),
    sa.column("is_synthetic", sa.Boolean()),
    sa.column("figures", sa.JSON(none_as_null=True)),
    sa.column("certificate", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    """Add the columns; every cell of the first schema was decoded greedily."""
    op.add_column(TABLE, sa.Column("sampling", sa.String(), nullable=False, server_default=""))
    op.add_column(
        TABLE, sa.Column("is_lossless", sa.Boolean(), nullable=False, server_default=sa.true())
    )
    op.add_column(
        TABLE, sa.Column("is_synthetic", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column(TABLE, sa.Column("certificate", sa.JSON(none_as_null=True), nullable=True))
    for cell_id, dtype, figures in _stored_cells():
        certificate = {name: figures.get(name, 0) for name in _COUNTS}
        differences = figures.get("differences", [])
        kinds = {each["kind"] for each in differences}
        certificate |= {
            "level": _level(dtype, kinds),
            "differences": differences,
            "tie_gap": _TIE_GAPS[dtype],
        }
        kept = {
            name: value
            for name, value in figures.items()
            if name == "num_items" or name not in {*_COUNTS, "differences"}
        }
        _write(cell_id, kept, certificate)


def downgrade() -> None:
    """Put the evidence back and drop the columns, and what the first schema cannot hold.

    Sampled, lossy and synthetic cells go: without their marks they would pass for others.
    """
    connection = op.get_bind()
    marks = (_CELLS.c.sampling != "", sa.not_(_CELLS.c.is_lossless), _CELLS.c.is_synthetic)
    connection.execute(sa.delete(_CELLS).where(sa.or_(*marks)))
    stored = sa.select(_CELLS.c.id, _CELLS.c.certificate)
    certificates = {row.id: row.certificate for row in connection.execute(stored)}
    for cell_id, _, figures in _stored_cells():
        certificate = certificates[cell_id] or {}
        moved = {name: certificate.get(name, 0) for name in _COUNTS[1:]}
        known = ("item_id", "position", "gap", "kind")
        differences = [
            {name: each[name] for name in known} for each in certificate.get("differences", [])
        ]
        kept = {name: figures[name] for name in _FIRST_FIGURES if name in figures}
        _write(cell_id, {**kept, **moved, "differences": differences}, None)
    with op.batch_alter_table(TABLE) as table:
        for name in ADDED:
            table.drop_column(name)


def _stored_cells() -> list[tuple[int, str, dict[str, Any]]]:
    query = sa.select(_CELLS.c.id, _CELLS.c.dtype, _CELLS.c.figures)
    rows = op.get_bind().execute(query).all()
    return [(row.id, row.dtype, row.figures) for row in rows if row.figures is not None]


def _write(cell_id: int, figures: dict[str, Any], certificate: dict[str, Any] | None) -> None:
    statement = sa.update(_CELLS).where(_CELLS.c.id == cell_id)
    op.get_bind().execute(statement.values(figures=figures, certificate=certificate))


def _level(dtype: str, kinds: set[str]) -> str:
    if "defect" in kinds:
        return "defect"
    if "unknown" in kinds:
        return "unproven"
    return "exact" if not kinds and dtype == "float64" else "up-to-ties"

"""The first schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "specdec_baselines",
    "specdec_benchmark_cells",
    "specdec_calibrations",
    "specdec_skip_profiles",
    "specdec_run_evaluations",
    "specdec_sample_results",
    "specdec_evaluations",
    "specdec_runs",
    "specdec_suites",
    "specdec_targets",
)


def upgrade() -> None:
    """Create every table, parents first."""
    _create_targets_and_suites()
    _create_runs()
    _create_evaluations()
    _create_sample_results()
    _create_run_evaluations()
    _create_skip_profiles()
    _create_calibrations()
    _create_benchmark_cells()
    _create_baselines()


def downgrade() -> None:
    """Drop every table, children first."""
    for table in TABLES:
        op.drop_table(table)


def _create_targets_and_suites() -> None:
    op.create_table(
        "specdec_targets",
        _id(),
        *_strings("identity", "reference", "kind", "architecture"),
        sa.Column("num_layers", sa.Integer(), nullable=False),
        sa.Column("license_note", sa.Text(), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_specdec_targets"),
        sa.UniqueConstraint("identity", name="uq_specdec_targets_identity"),
    )
    op.create_table(
        "specdec_suites",
        _id(),
        *_strings("content_hash", "name", "domain", "source"),
        sa.Column("num_items", sa.Integer(), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_specdec_suites"),
        sa.UniqueConstraint("content_hash", name="uq_specdec_suites_content_hash"),
    )


def _create_runs() -> None:
    op.create_table(
        "specdec_runs",
        *_strings("id", "kind", "name", "status"),
        *(_json(name) for name in ("config", "provenance", "summary")),
        sa.Column("flow_run_id", sa.String()),
        sa.Column("tracker_id", sa.String()),
        sa.Column("error", sa.Text()),
        _moment("created_at"),
        _moment("updated_at"),
        sa.PrimaryKeyConstraint("id", name="pk_specdec_runs"),
        sa.UniqueConstraint(
            "flow_run_id", "kind", "name", name="uq_specdec_runs_flow_run_id_kind_name"
        ),
        sa.CheckConstraint(
            "status IN ('running', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_specdec_runs_status"),
        ),
    )
    op.create_index("ix_specdec_runs_created_at", "specdec_runs", ["created_at"])
    op.create_index("ix_specdec_runs_kind_status", "specdec_runs", ["kind", "status"])


def _create_evaluations() -> None:
    indexed = ["target_identity", "domain", "drafter", "skip"]
    op.create_table(
        "specdec_evaluations",
        _id(),
        *_strings("key", "status"),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error_type", sa.String()),
        sa.Column("error", sa.Text()),
        *_strings(*indexed, "suite_hash"),
        _json("request"),
        _json("summary", nullable=True),
        _json("phases", nullable=True),
        sa.Column("wall_s", sa.Double()),
        sa.Column("peak_memory_bytes", sa.BigInteger()),
        *_strings("hardware"),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_specdec_evaluations"),
        sa.UniqueConstraint("key", name="uq_specdec_evaluations_key"),
        sa.CheckConstraint(
            "status IN ('done', 'failed')", name=op.f("ck_specdec_evaluations_status")
        ),
        sa.CheckConstraint(
            "(status = 'done') = (summary IS NOT NULL)",
            name=op.f("ck_specdec_evaluations_done_has_summary"),
        ),
    )
    op.create_index(
        "ix_specdec_evaluations_target_identity_domain_drafter_skip",
        "specdec_evaluations",
        indexed,
    )


def _create_sample_results() -> None:
    op.create_table(
        "specdec_sample_results",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("evaluation_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        *_strings("item_id"),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.LargeBinary(), nullable=False) for name in _COMPRESSED),
        sa.Column("useful_tokens", sa.Integer(), nullable=False),
        *_strings("finish_reason"),
        sa.Column("score", sa.Double()),
        sa.Column("raw_score", sa.Double()),
        sa.Column("trace", sa.Text(), nullable=False),
        _json("gaps"),
        sa.Column("seconds", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_specdec_sample_results"),
        _foreign_key("specdec_sample_results", "evaluation_id", "specdec_evaluations.id"),
        sa.UniqueConstraint(
            "evaluation_id", "position", name="uq_specdec_sample_results_evaluation_id_position"
        ),
        sa.UniqueConstraint(
            "evaluation_id", "item_id", name="uq_specdec_sample_results_evaluation_id_item_id"
        ),
    )


def _create_run_evaluations() -> None:
    table = "specdec_run_evaluations"
    op.create_table(
        table,
        _id(),
        *_strings("run_id"),
        sa.Column("evaluation_id", sa.Integer(), nullable=False),
        *_strings("role"),
        sa.Column("level", sa.Integer()),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        _foreign_key(table, "run_id", "specdec_runs.id"),
        _foreign_key(table, "evaluation_id", "specdec_evaluations.id"),
        sa.UniqueConstraint(
            "run_id", "evaluation_id", "role", name=f"uq_{table}_run_id_evaluation_id_role"
        ),
    )
    op.create_index(f"ix_{table}_evaluation_id", table, ["evaluation_id"])


def _create_skip_profiles() -> None:
    table = "specdec_skip_profiles"
    key = ("target_identity", "domain", "drafter", "dtype")
    op.create_table(
        table,
        _id(),
        sa.Column("version", sa.Integer(), nullable=False),
        *_strings("target", *key, "skip", "status"),
        sa.Column("num_layers", sa.Integer(), nullable=False),
        sa.Column("is_dense", sa.Boolean(), nullable=False),
        *_strings("run_id", "suite_hash", "template_hash", "hardware"),
        _json("selection"),
        _json("heldout", nullable=True),
        sa.Column("tolerance_acceptance", sa.Double(), nullable=False),
        sa.Column("tolerance_metric", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        _foreign_key(table, "run_id", "specdec_runs.id"),
        sa.UniqueConstraint(*key, "version", name=f"uq_{table}_version"),
        sa.UniqueConstraint("run_id", *key, "skip", name=f"uq_{table}_run"),
        sa.CheckConstraint(
            "status IN ('active', 'retired', 'rejected')", name=op.f(f"ck_{table}_status")
        ),
        sa.CheckConstraint("is_dense = (skip = '')", name=op.f(f"ck_{table}_dense_skips_nothing")),
    )
    is_active = sa.text("status = 'active'")
    op.create_index(
        f"uq_{table}_active",
        table,
        list(key),
        unique=True,
        sqlite_where=is_active,
        postgresql_where=is_active,
    )
    op.create_index(f"ix_{table}_status_domain_target", table, ["status", "domain", "target"])


def _create_calibrations() -> None:
    table = "specdec_calibrations"
    op.create_table(
        table,
        _id(),
        *_strings("target", "target_identity", "dtype", "hardware", "skip"),
        sa.Column("context_tokens", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String()),
        _json("curve"),
        _json("layers"),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        _foreign_key(table, "run_id", "specdec_runs.id"),
        sa.UniqueConstraint(
            "target_identity",
            "dtype",
            "hardware",
            "skip",
            "context_tokens",
            name=f"uq_{table}_key",
        ),
    )


def _create_benchmark_cells() -> None:
    table = "specdec_benchmark_cells"
    key = ("run_id", "target_identity", "dtype", "domain", "drafter", "skip")
    op.create_table(
        table,
        _id(),
        *_strings(*key, "target", "status"),
        sa.Column("error", sa.Text()),
        *_strings("suite_hash", "hardware"),
        sa.Column("evaluation_key", sa.String()),
        sa.Column("baseline_key", sa.String()),
        _json("figures", nullable=True),
        sa.Column("samples", sa.LargeBinary(), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        _foreign_key(table, "run_id", "specdec_runs.id"),
        sa.UniqueConstraint(*key, name=f"uq_{table}_key"),
        sa.CheckConstraint("status IN ('done', 'failed')", name=op.f(f"ck_{table}_status")),
    )
    op.create_index(f"ix_{table}_domain_drafter", table, ["domain", "drafter"])


def _create_baselines() -> None:
    table = "specdec_baselines"
    op.create_table(
        table,
        _id(),
        *_strings("name", "run_id"),
        sa.Column("reason", sa.Text(), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        _foreign_key(table, "run_id", "specdec_runs.id"),
    )
    op.create_index(f"ix_{table}_name_id", table, ["name", "id"])


_COMPRESSED = ("token_ids", "text", "answer")


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), nullable=False)


def _strings(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(), nullable=False) for name in names]


def _json(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=nullable)


def _moment(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


def _foreign_key(table: str, column: str, referred: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [referred], name=f"fk_{table}_{column}")

"""Profiles get the statuses before active, a record of every move, and repeated measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

PROFILES = "specdec_skip_profiles"
TARGETS = "specdec_targets"
TRANSITIONS = "specdec_profile_transitions"
VERIFICATIONS = "specdec_profile_verifications"
_FORMER = "status IN ('active', 'retired', 'rejected')"
_PRESENT = "status IN ('candidate', 'validated', 'active', 'retired', 'rejected')"
_KEY = ("target_identity", "domain", "drafter", "dtype")
_PROFILES = sa.table(
    PROFILES,
    *(sa.column(name, sa.String()) for name in (*_KEY, "status", "run_id", "reason")),
    *(sa.column(name, sa.Integer()) for name in ("id", "version")),
    sa.column("created_at", sa.DateTime(timezone=True)),
)
_TARGETS = sa.table(
    TARGETS, *(sa.column(name, sa.DateTime(timezone=True)) for name in ("created_at", "seen_at"))
)


def upgrade() -> None:
    """Widen the statuses, add the tables, and write down what is known of former moves."""
    _set_statuses(_PRESENT)
    _add_seen_at()
    op.create_table(
        TRANSITIONS,
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("from_status", sa.String(), nullable=True),
        sa.Column("to_status", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        *_common(TRANSITIONS),
    )
    op.create_table(
        VERIFICATIONS,
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("holds", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("heldout", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("hardware", sa.String(), nullable=False),
        *_common(VERIFICATIONS),
        sa.UniqueConstraint("run_id", name=f"uq_{VERIFICATIONS}_run_id"),
    )
    for table in (TRANSITIONS, VERIFICATIONS):
        op.create_index(f"ix_{table}_profile_id", table, ["profile_id"])
    _write_former_moves()


def downgrade() -> None:
    """Drop what was added. Candidates go, and what is validated but not active is retired."""
    op.drop_table(VERIFICATIONS)
    op.drop_table(TRANSITIONS)
    status = _PROFILES.c.status
    connection = op.get_bind()
    connection.execute(sa.delete(_PROFILES).where(status == "candidate"))
    connection.execute(sa.update(_PROFILES).where(status == "validated").values(status="retired"))
    _set_statuses(_FORMER)
    with op.batch_alter_table(TARGETS) as table:
        table.drop_column("seen_at")


def _add_seen_at() -> None:
    op.add_column(TARGETS, sa.Column("seen_at", sa.DateTime(timezone=True), nullable=True))
    op.get_bind().execute(sa.update(_TARGETS).values(seen_at=_TARGETS.c.created_at))
    with op.batch_alter_table(TARGETS) as table:
        table.alter_column("seen_at", nullable=False)


def _set_statuses(condition: str) -> None:
    """Change the check of the status column; SQLite rebuilds the table for that."""
    name = op.f(f"ck_{PROFILES}_status")
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        op.drop_constraint(name, PROFILES, type_="check")
        op.create_check_constraint(name, PROFILES, condition)
        return
    table = sa.Table(PROFILES, sa.MetaData(), autoload_with=connection)
    # Whether the checks of a table are read depends on the version of SQLAlchemy.
    for check in [each for each in table.constraints if isinstance(each, sa.CheckConstraint)]:
        table.constraints.remove(check)
    dense = op.f(f"ck_{PROFILES}_dense_skips_nothing")
    table.append_constraint(sa.CheckConstraint("is_dense = (skip = '')", name=dense))
    table.append_constraint(sa.CheckConstraint(condition, name=name))
    with op.batch_alter_table(PROFILES, recreate="always", copy_from=table):
        pass


def _common(table: str) -> tuple[Any, ...]:
    return (
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        sa.ForeignKeyConstraint(["profile_id"], [f"{PROFILES}.id"], name=f"fk_{table}_profile_id"),
        sa.ForeignKeyConstraint(["run_id"], ["specdec_runs.id"], name=f"fk_{table}_run_id"),
    )


def _write_former_moves() -> None:
    """A version was published in one go, and retired when the next active one of its key was."""
    query = sa.select(_PROFILES).order_by(*(_PROFILES.c[name] for name in (*_KEY, "version")))
    rows = op.get_bind().execute(query).all()
    moves = [move for number, row in enumerate(rows) for move in _moves(row, rows[number + 1 :])]
    moves.sort(key=lambda move: move["created_at"])
    if moves:
        names = ("profile_id", "from_status", "to_status", "reason", "run_id", "command", "actor")
        table = sa.table(
            TRANSITIONS,
            *(sa.column(name) for name in names),
            sa.column("created_at", sa.DateTime(timezone=True)),
        )
        op.bulk_insert(table, moves)


def _moves(row: Any, later: Sequence[Any]) -> Iterator[dict[str, Any]]:
    def move(start: str | None, end: str, cause: Any, reason: str) -> dict[str, Any]:
        return {
            "profile_id": row.id,
            "from_status": start,
            "to_status": end,
            "reason": reason,
            "run_id": cause.run_id,
            "command": "",
            "actor": "",
            "created_at": cause.created_at,
        }

    yield move(None, "candidate", row, row.reason)
    if row.status == "rejected":
        yield move("candidate", "rejected", row, row.reason)
        return
    yield move("candidate", "validated", row, row.reason)
    yield move("validated", "active", row, row.reason)
    key = [getattr(row, name) for name in _KEY]
    successors = (
        each
        for each in later
        if each.status != "rejected" and [getattr(each, name) for name in _KEY] == key
    )
    successor = next(successors, None)
    if row.status == "retired" and successor is not None:
        yield move("active", "retired", successor, f"version {successor.version} became active")

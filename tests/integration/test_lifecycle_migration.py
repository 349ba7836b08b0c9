"""Profiles of the schema without a lifecycle stay as they are and get their history."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command

from db import migrate
from db.store import Store
from tests.integration import store_examples as examples


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'specdec.db'}"
    answer: str = request.getfixturevalue("postgres_url")
    return answer


def migrate_to(store: Store, revision: str) -> None:
    config = migrate._config()
    with store.database.write() as connection:
        config.attributes["connection"] = connection
        step = command.downgrade if revision < "0003" else command.upgrade
        step(config, revision)


def open_without_foreign_keys(url: str) -> Store:
    """A store whose writer may rebuild tables, as a migration may."""
    store = Store.open(url)
    if store.database.is_sqlite:
        from db.engine import Database, sqlite_engine

        database = store.database
        writer = sqlite_engine(database.url, is_migration=True)
        return Store(Database(database.url, writer, database.reader))
    return store


def test_former_profiles_stay_and_their_moves_are_written_down(url: str) -> None:
    with open_without_foreign_keys(url) as store:
        store.targets.put(examples.target())
        runs = [examples.make_run(store) for _ in range(4)]
        first = store.profiles.publish(examples.profile(runs[0].id))
        rejected = store.profiles.publish(
            examples.profile(runs[1].id, skip="a4", status="rejected", reason="metric fell")
        )
        other = store.profiles.publish(examples.profile(runs[2].id, domain="math"))
        second = store.profiles.publish(examples.profile(runs[3].id, skip="a5"))
        before = store.profiles.list()
        migrate_to(store, "0002")
        migrate_to(store, "head")
        assert store.profiles.list() == before

        def moves(profile_id: int | None) -> list[tuple[str | None, str, str | None, str]]:
            return [
                (each.from_status, each.to_status, each.run_id, each.reason)
                for each in store.profiles.transitions(profile_id or 0)
            ]

        def activation(run_id: str) -> list[tuple[str | None, str, str | None, str]]:
            reason = "held-out metric stays within tolerance"
            return [
                (None, "candidate", run_id, reason),
                ("candidate", "validated", run_id, reason),
                ("validated", "active", run_id, reason),
            ]

        # The first was retired by the publication of the third version of its key.
        retired = ("active", "retired", runs[3].id, "version 3 became active")
        assert moves(first.id) == [*activation(runs[0].id), retired]
        assert moves(rejected.id) == [
            (None, "candidate", runs[1].id, "metric fell"),
            ("candidate", "rejected", runs[1].id, "metric fell"),
        ]
        assert moves(other.id) == activation(runs[2].id)
        assert moves(second.id) == activation(runs[3].id)
        times = [each.created_at for each in store.profiles.transitions(first.id or 0)]
        assert times == [first.created_at] * 3 + [second.created_at]
        # The target is known as seen when it was stored, so that versions can be activated.
        assert store.profiles.move(first.id or 0, "active", examples.cause()).status == "active"


def test_profiles_that_the_former_schema_cannot_serve_are_rejected_with_a_reason(url: str) -> None:
    with open_without_foreign_keys(url) as store:
        store.targets.put(examples.target())
        sparse = store.profiles.publish(examples.profile(examples.make_run(store).id))
        run = examples.make_run(store)
        dense = store.profiles.publish(
            examples.profile(run.id, domain="math", skip="a4", prefill="dense")
        )
        known = store.profiles.transitions(dense.id or 0)
        config = migrate._config()
        with store.database.write() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0004")
        migrate_to(store, "head")
        found = {each.id: each.status for each in store.profiles.list()}
        assert found == {sparse.id: "active", dense.id: "rejected"}
        *before, last = store.profiles.transitions(dense.id or 0)
        assert before == known
        assert (last.from_status, last.to_status, last.run_id) == ("active", "rejected", None)
        assert "dense prefill" in last.reason
        assert last.created_at >= dense.created_at
        assert all(
            each.to_status != "rejected" for each in store.profiles.transitions(sparse.id or 0)
        )


def test_the_former_schema_gets_what_it_can_hold(url: str) -> None:
    with open_without_foreign_keys(url) as store:
        for status in ("candidate", "validated", "active", "rejected"):
            run = examples.make_run(store)
            store.profiles.publish(examples.profile(run.id, status=status, domain=status))
        migrate_to(store, "0002")
        query = "SELECT domain, status FROM specdec_skip_profiles ORDER BY id"
        with store.database.read() as connection:
            rows = [tuple(row) for row in connection.exec_driver_sql(query)]
        assert rows == [("validated", "retired"), ("active", "active"), ("rejected", "rejected")]
        migrate_to(store, "head")

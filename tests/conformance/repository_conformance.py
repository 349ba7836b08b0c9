"""What the repositories of runs and evaluations must do on every database system."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from sqlalchemy import inspect

from db.migrate import migration_context
from db.models import SCHEMA_REVISION, TABLE_PREFIX, Base
from db.repositories.common import MAX_MESSAGE_CHARACTERS
from db.schemas import SuiteRecord, TargetRecord
from db.store import Store
from specdec_core.config.drafters import PromptLookup
from specdec_core.errors import ConfigError, StoreError
from tests.integration import store_examples as examples


class RepositoryConformance:
    """Subclass and supply `database_url`, the URL of an empty database."""

    @pytest.fixture
    def store(self, database_url: str) -> Iterator[Store]:
        with Store.open(database_url) as store:
            yield store

    # Schema

    def test_migrated_schema_is_the_one_of_the_models(self, store: Store) -> None:
        assert store.schema_revision() == SCHEMA_REVISION
        with store.database.read() as connection:
            assert compare_metadata(migration_context(connection), Base.metadata) == []

    def test_every_table_has_our_prefix_and_checks_agree(self, store: Store) -> None:
        inspector = inspect(store.database.reader)
        tables = inspector.get_table_names()
        assert {*tables} == {*Base.metadata.tables} | {"specdec_alembic_version"}
        assert all(table.startswith(TABLE_PREFIX) for table in tables)
        for name, table in Base.metadata.tables.items():
            stored = {check["name"] for check in inspector.get_check_constraints(name)}
            wanted = {c.name for c in table.constraints if type(c).__name__ == "CheckConstraint"}
            assert stored == wanted

    def test_opening_again_keeps_what_is_stored(self, store: Store, database_url: str) -> None:
        run = examples.make_run(store)
        with Store.open(database_url) as again:
            assert again.runs.get(run.id) == run

    def test_a_newer_schema_is_refused(self, store: Store, database_url: str) -> None:
        with store.database.write() as connection:
            connection.exec_driver_sql("UPDATE specdec_alembic_version SET version_num = '9999'")
        with pytest.raises(StoreError, match=r"revision '9999'.*upgrade specdec-lab"):
            Store.open(database_url)

    def test_neighbours_in_the_database_are_left_alone(self, database_url: str) -> None:
        with Store.open(database_url) as store, store.database.write() as connection:
            connection.exec_driver_sql("CREATE TABLE trials (id INTEGER)")
        with Store.open(database_url) as store, store.database.read() as connection:
            assert compare_metadata(migration_context(connection), Base.metadata) == []

    # Targets, suites

    def test_target_is_one_row_by_identity(self, store: Store) -> None:
        target = TargetRecord(identity="a", reference="path:/a", kind="base", num_layers=18)
        assert store.targets.get("a") is None
        assert store.targets.put(target) == target
        moved = target.model_copy(update={"reference": "path:/b"})
        assert store.targets.put(moved) == moved
        assert store.targets.get(moved.identity) == moved

    def test_suite_is_one_row_by_content_hash(self, store: Store) -> None:
        suite = SuiteRecord(content_hash="h", name="wmt", domain="translation", num_items=80)
        assert store.suites.get("h") is None
        store.suites.put(suite)
        assert store.suites.put(suite) == suite
        assert store.suites.get("h") == suite

    # Runs

    def test_run_life(self, store: Store) -> None:
        run = examples.make_run(store)
        assert (run.status, run.config, run.provenance) == (
            "running",
            {"beam": 4},
            examples.PROVENANCE,
        )
        done = store.runs.update(run.id, status="completed", summary={"skip": "a3"})
        assert done.created_at == run.created_at < done.updated_at
        assert (done.status, done.summary) == ("completed", {"skip": "a3"})
        assert store.runs.get(run.id) == done
        assert store.runs.get("unknown") is None

    def test_retried_flow_run_continues_its_run(self, store: Store) -> None:
        run = examples.make_run(store, flow_run_id="f1")
        store.runs.update(run.id, status="failed", error="worker lost")
        again = examples.make_run(store, flow_run_id="f1")
        assert (again.id, again.status, again.error) == (run.id, "running", None)
        other = examples.make_run(store, flow_run_id="f1", name="summarization")
        assert len({run.id, other.id, examples.make_run(store).id}) == 3
        assert {found.id for found in store.runs.list(flow_run_id="f1")} == {run.id, other.id}
        assert store.runs.count() == 3

    def test_runs_are_listed_newest_first_with_filters(self, store: Store) -> None:
        runs = [examples.make_run(store, kind=kind) for kind in ("a", "b", "a")]
        store.runs.update(runs[2].id, status="cancelled")
        assert [run.id for run in store.runs.list()] == [run.id for run in reversed(runs)]
        assert [run.id for run in store.runs.list(kind="a", limit=1, offset=1)] == [runs[0].id]
        assert [run.id for run in store.runs.list(status="cancelled")] == [runs[2].id]
        assert store.runs.count(kind="a") == 2
        with pytest.raises(ConfigError, match="limit -1"):
            store.runs.list(limit=-1)

    def test_runs_are_found_by_what_was_asked_of_them(self, store: Store) -> None:
        asked = {"beam": 4, "tolerances": [0.05, None], "nested": {"b": 1, "a": "x"}}
        runs = [examples.make_run(store, config=asked) for _ in range(3)]
        examples.make_run(store, config={**asked, "beam": 5})
        examples.make_run(store, config=asked, name="qa")
        examples.make_run(store, config=asked, kind="sweep")
        turned = {name: asked[name] for name in reversed(asked)}
        named = ("tss-search", "translation", turned)
        assert store.runs.ids_of(*named, "running") == [run.id for run in reversed(runs)]
        store.runs.update(runs[1].id, status="completed")
        assert store.runs.ids_of(*named, "completed") == [runs[1].id]
        assert store.runs.ids_of(*named, "failed") == []

    def test_bad_changes_of_runs_are_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.runs.update("x", status="failed")
        run = examples.make_run(store)
        store.runs.update(run.id, error="zero \0 byte, half \ud800 character")
        stored = store.runs.get(run.id)
        assert stored is not None
        assert stored.error == "zero \N{REPLACEMENT CHARACTER} byte, half ? character"
        with pytest.raises(TypeError, match=r"'kind'.*choose among.*status"):
            store.runs.update(run.id, kind="other")  # type: ignore[call-arg]  # the mistake tested
        with pytest.raises(StoreError, match="contradicts"):
            store.runs.update(run.id, status="odd")  # type: ignore[arg-type]  # the mistake tested

    def test_links_are_idempotent_and_keep_their_order(self, store: Store) -> None:
        run = examples.make_run(store)
        dense, sparse = examples.request(skip=""), examples.request(skip="a3")
        for asked in (sparse, dense):
            store.evaluations.put(asked, examples.result(asked))
        for _ in range(2):
            store.runs.link(run.id, dense.key, "dense", None)
            store.runs.link(run.id, sparse.key, "candidate", 1)
        linked = store.runs.evaluations(run.id)
        assert [(role, level) for role, level, _ in linked] == [("dense", None), ("candidate", 1)]
        assert [row for _, _, row in linked] == [
            store.evaluations.row(dense.key),
            store.evaluations.row(sparse.key),
        ]
        assert store.runs.evaluations(run.id, limit=1, offset=1) == linked[1:]
        assert store.runs.count_evaluations(run.id) == 2
        assert store.runs.suite_hashes(run.id) == ["s" * 64]
        assert store.evaluations.run_ids(dense.key) == [run.id]

    def test_links_need_both_ends(self, store: Store) -> None:
        asked = examples.request()
        run = examples.make_run(store)
        with pytest.raises(StoreError, match=r"evaluation .* is not stored: put it"):
            store.runs.link(run.id, asked.key, "dense", None)
        store.evaluations.put(asked, examples.result(asked))
        with pytest.raises(StoreError, match="run 'x' is not stored: create it"):
            store.runs.link("x", asked.key, "dense", None)

    # Evaluations

    def test_result_comes_back_equal(self, store: Store) -> None:
        asked = examples.request()
        result = examples.result(asked)
        assert store.evaluations.get(asked.key) is None
        assert store.evaluations.put(asked, result) is True
        assert store.evaluations.get(asked.key) == result
        assert store.evaluations.summary(asked.key) == result.summary
        assert store.evaluations.samples(asked.key) == result.samples
        assert store.evaluations.samples(asked.key, 1, 1) == result.samples[1:]
        row = store.evaluations.row(asked.key)
        assert row is not None
        assert (row.request, row.summary, row.status, row.attempts) == (
            asked,
            result.summary,
            "done",
            1,
        )

    def test_second_put_changes_nothing(self, store: Store) -> None:
        asked = examples.request()
        store.evaluations.put(asked, examples.result(asked))
        row = store.evaluations.row(asked.key)
        assert store.evaluations.put(asked, examples.result(asked, wall_s=99.0)) is False
        assert store.evaluations.row(asked.key) == row
        assert len(store.evaluations.samples(asked.key)) == 2

    def test_failures_are_counted_until_a_try_succeeds(self, store: Store) -> None:
        asked = examples.request()
        assert store.evaluations.fail(asked, "MeasurementError", "logits are NaN") == 1
        assert store.evaluations.fail(asked, "OutOfMemory", "zero \0 byte") == 2
        row = store.evaluations.row(asked.key)
        assert row is not None
        assert (row.status, row.attempts, row.error_type, row.error) == (
            "failed",
            2,
            "OutOfMemory",
            "zero \N{REPLACEMENT CHARACTER} byte",
        )
        assert store.evaluations.get(asked.key) is None
        assert store.evaluations.summary(asked.key) is None
        assert store.evaluations.samples(asked.key) == ()
        assert store.evaluations.put(asked, examples.result(asked)) is True
        row = store.evaluations.row(asked.key)
        assert row is not None
        assert (row.status, row.attempts, row.error) == ("done", 3, None)

    def test_a_done_evaluation_cannot_fail_later(self, store: Store) -> None:
        asked = examples.request()
        store.evaluations.put(asked, examples.result(asked))
        assert store.evaluations.fail(asked, "Late", "a second worker failed") == 1
        assert store.evaluations.get(asked.key) == examples.result(asked)

    def test_long_messages_are_cut(self, store: Store) -> None:
        asked = examples.request()
        store.evaluations.fail(asked, "Long", "x" * (MAX_MESSAGE_CHARACTERS + 1))
        row = store.evaluations.row(asked.key)
        assert row is not None
        assert row.error == "x" * MAX_MESSAGE_CHARACTERS

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"key": "other"}, "does not answer request"),
            ({"samples": (examples.sample("de-1"),)}, "has 1 samples that are not the same"),
            (
                {"samples": (examples.sample("de-1"), examples.sample("de-2", score=float("nan")))},
                "'de-2' .* not finite",
            ),
            (
                {"summary": examples.summary().model_copy(update={"metric": float("inf")})},
                "cannot hold a value",
            ),
            (
                {"samples": (examples.sample("de-1"), examples.sample("de-2", token_ids=(2**31,)))},
                "cannot hold a value",
            ),
        ],
    )
    def test_a_result_that_is_not_whole_leaves_nothing(
        self, store: Store, changes: dict[str, object], message: str
    ) -> None:
        asked = examples.request()
        with pytest.raises(StoreError, match=message):
            store.evaluations.put(asked, examples.result(asked, **changes))
        assert store.evaluations.row(asked.key) is None
        assert store.evaluations.samples(asked.key) == ()

    def test_evaluations_are_filtered(self, store: Store) -> None:
        first = examples.request()
        second = examples.request(drafter=PromptLookup(), skip="")
        store.evaluations.put(first, examples.result(first))
        store.evaluations.fail(second, "Lost", "worker died")
        keys = [row.key for row in store.evaluations.list()]
        assert keys == [second.key, first.key]
        find = store.evaluations.list
        for found in (find(drafter="prompt-lookup"), find(skip=""), find(status="failed")):
            assert [row.key for row in found] == [second.key]
        assert store.evaluations.list(domain="math") == []
        assert (store.evaluations.count(), store.evaluations.count("done")) == (2, 1)

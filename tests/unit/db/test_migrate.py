import json
import zlib
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from filelock import FileLock

from db import migrate
from db.cells import CellFigures
from db.engine import Database
from db.models import SCHEMA_REVISION
from db.store import Store
from specdec_core.errors import StoreError
from tests.integration import store_examples as examples


def test_the_code_names_the_newest_revision() -> None:
    script = ScriptDirectory.from_config(migrate._config())
    assert script.get_heads() == [SCHEMA_REVISION]


def test_a_migration_elsewhere_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "MIGRATION_TIMEOUT_S", 0.1)
    path = tmp_path / "specdec.db"
    with (
        FileLock(f"{path}.lock"),
        pytest.raises(StoreError, match="being migrated by another process"),
    ):
        Store.open(f"sqlite:///{path}")
    Store.open(f"sqlite:///{path}").close()


def test_a_migration_that_fails_leaves_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'specdec.db'}"

    def upgrade_and_fail(config: Config, revision: str) -> None:
        original(config, revision)
        raise KeyboardInterrupt

    original = command.upgrade
    monkeypatch.setattr(command, "upgrade", upgrade_and_fail)
    with pytest.raises(KeyboardInterrupt):
        Store.open(url)
    database = Database.connect(url)
    with database.read() as connection:
        query = "SELECT count(*) FROM sqlite_master"
        assert connection.exec_driver_sql(query).scalar() == 0
    database.close()


def test_the_first_revision_can_be_taken_back(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        config = migrate._config()
        with store.database.write() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "base")
        assert store.schema_revision() is None


def test_alembic_without_a_connection_says_what_to_call() -> None:
    with pytest.raises(StoreError, match=r"call db\.migrate\.migrate"):
        command.upgrade(migrate._config(), "head")


def test_cells_of_the_first_schema_keep_their_evidence_through_both_directions(
    tmp_path: Path,
) -> None:
    config = migrate._config()
    difference = {"item_id": "de-1", "position": 3, "gap": 0.5, "kind": "defect"}
    figures = {
        "num_items": 4,
        "num_tokens": 9,
        "acceptance_length": 3.0,
        "tokens_per_s": 72.0,
        "num_identical": 2,
        "num_ties": 1,
        "num_defects": 1,
        "differences": [difference, difference | {"gap": 0.125, "kind": "tie"}],
    }
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        run = examples.make_run(store)
        with store.database.write() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0001")
            cell = examples.cell(run.id)
            columns = "run_id, target, target_identity, dtype, domain, drafter, skip, status"
            values = [run.id, "t", "i", "bfloat16", cell.domain, cell.drafter, "", "done"]
            connection.exec_driver_sql(
                f"INSERT INTO specdec_benchmark_cells ({columns}, suite_hash, hardware, figures, "
                "samples, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', '', ?, ?, ?)",
                (*values, json.dumps(figures), zlib.compress(b"[]"), "2026-01-02 03:04:05"),
            )
            command.upgrade(config, "head")
        (moved,) = store.benchmarks.list()
        assert moved.certificate is not None
        assert (moved.certificate.level, moved.certificate.tie_gap) == ("defect", 0.25)
        assert (moved.certificate.num_identical, moved.certificate.num_ties) == (2, 1)
        assert [each.kind for each in moved.certificate.differences] == ["defect", "tie"]
        assert (moved.is_lossless, moved.is_synthetic, moved.sampling) == (True, False, "")
        assert moved.figures is not None
        assert (moved.figures.num_items, moved.figures.tokens_per_s) == (4, 72.0)
        with store.database.write() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0001")
            stored = connection.exec_driver_sql("SELECT figures FROM specdec_benchmark_cells")
            assert json.loads(stored.scalar_one()) == figures


def test_the_first_schema_gets_what_it_knows_of_newer_cells_and_nothing_marked(
    tmp_path: Path,
) -> None:
    config = migrate._config()
    figures = CellFigures(
        num_items=1,
        num_tokens=9,
        num_steps=3,
        acceptance_length=3.0,
        mean_accepted_tokens=3.25,
        position_acceptance=(0.5,),
        tokens_per_s=72.0,
        num_repeats=2,
        num_paired=1,
    )
    marks = ({"sampling": "temperature=1.0"}, {"is_lossless": False}, {"is_synthetic": True})
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        run = examples.make_run(store)
        store.benchmarks.put(examples.cell(run.id, figures=figures))
        for number, mark in enumerate(marks):
            store.benchmarks.put(examples.cell(run.id, domain=f"domain-{number}", **mark))
        with store.database.write() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0001")
            query = "SELECT domain, figures FROM specdec_benchmark_cells"
            ((domain, stored),) = connection.exec_driver_sql(query).all()
            assert domain == "translation"
            assert json.loads(stored) == {
                "num_items": 1,
                "num_tokens": 9,
                "acceptance_length": 3.0,
                "hit_rate": None,
                "metric": None,
                "tokens_per_s": 72.0,
                "speedup": None,
                "peak_memory_bytes": None,
                "num_identical": 1,
                "num_ties": 0,
                "num_defects": 0,
                "differences": [],
            }
            command.upgrade(config, "head")
        (again,) = store.benchmarks.list()
        assert again.certificate is not None
        assert again.certificate.level == "up-to-ties"


def test_samples_of_the_former_schema_load_without_steps_and_token_ends(tmp_path: Path) -> None:
    config, request = migrate._config(), examples.request()
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        store.evaluations.put(request, examples.result(request))
        with store.database.write() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0003")
            command.upgrade(config, "head")
        first, _ = store.evaluations.samples(request.key)
        assert (first.step_seconds, first.token_ends) == ((), ())
        assert first == examples.sample("de-1", step_seconds=(), token_ends=())


def test_former_profiles_read_prompts_sparsely_and_former_code_serves_no_others(
    tmp_path: Path,
) -> None:
    config = migrate._config()
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        run = examples.make_run(store)
        kinds = {"qa": "sparse", "rag": "dense"}
        ids = {
            prefill: store.profiles.publish(
                examples.profile(run.id, domain=domain, prefill=prefill)
            ).id
            for domain, prefill in kinds.items()
        }
        with store.database.write() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0004")
            command.upgrade(config, "head")
        sparse, dense = (store.profiles.get(ids[prefill] or 0) for prefill in kinds.values())
        assert sparse is not None
        assert (sparse.prefill, sparse.status) == ("sparse", "active")
        assert dense is not None
        assert dense.status == "rejected"

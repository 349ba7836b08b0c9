from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from filelock import FileLock

from db import migrate
from db.engine import Database
from db.models import SCHEMA_REVISION
from db.store import Store
from specdec_core.errors import StoreError


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

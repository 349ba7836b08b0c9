import builtins
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from db.engine import Database, parse_url
from db.store import Store
from specdec_core.errors import ConfigError, StoreError
from tests.integration import store_examples as examples


@pytest.mark.parametrize(
    "url",
    ["postgres://u@h/d", "postgresql://u@h/d", "postgresql+psycopg://u@h/d"],
)
def test_every_spelling_of_postgresql_means_psycopg_3(url: str) -> None:
    assert parse_url(url).render_as_string() == "postgresql+psycopg://u@h/d"


def test_sqlite_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_url("sqlite:///a/b.db").database == str(tmp_path / "a" / "b.db")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("no url", "is not understood: write sqlite:"),
        ("mysql://h/d", "'mysql' is not supported: use sqlite:"),
        ("sqlite+aiosqlite:///x.db", "is not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///file:x?mode=memory&uri=true", "names no file"),
    ],
)
def test_urls_that_cannot_work_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Database.connect(url)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_psycopg(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
        return original(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "psycopg", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_psycopg)
    with pytest.raises(StoreError, match=r"pip install 'specdec-lab\[postgres\]'"):
        Database.connect("postgresql://u@h/d")


def test_names_hide_the_password() -> None:
    database = Database.connect("postgresql://u:hidden-word@h/d?options=-csearch_path%3Dspecdec")
    assert "hidden-word" not in database.name
    assert "h/d" in database.name


def test_sqlite_settings(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        with store.database.write() as connection:
            pragmas = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "foreign_keys", "busy_timeout")
            ]
            assert pragmas == ["wal", 1, 30_000]
        with (
            pytest.raises(StoreError, match="is read-only"),
            store.database.read() as connection,
        ):
            connection.exec_driver_sql("DELETE FROM specdec_runs")


def test_resolve_uses_an_index(tmp_path: Path) -> None:
    from db.repositories.resolution import question

    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        query, values = question("t", "d", "none", None)
        with store.database.read() as connection:
            compiled = query.compile(connection, compile_kwargs={"render_postcompile": True})
            plan = connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {compiled}",
                tuple((compiled.params | values)[name] for name in compiled.positiontup or ()),
            ).all()
        text = " ".join(row[-1] for row in plan)
        assert "SEARCH specdec_skip_profiles USING INDEX" in text
        assert "SCAN" not in text


def update_and_fail(connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE specdec_runs SET status = 'failed'")
    raise ZeroDivisionError


def test_a_write_that_raises_leaves_nothing(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        run = examples.make_run(store)
        with (
            pytest.raises(ZeroDivisionError),
            store.database.write() as connection,
        ):
            update_and_fail(connection)
        assert store.runs.get(run.id) == run


def test_a_number_that_the_database_cannot_hold_is_told_in_words(tmp_path: Path) -> None:
    with (
        Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store,
        pytest.raises(StoreError, match="cannot hold a value: Python int too large"),
    ):
        store.profiles.get(2**63)


def test_a_stored_row_of_another_version_is_named(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        asked = examples.request()
        store.evaluations.put(asked, examples.result(asked))
        with store.database.write() as connection:
            connection.exec_driver_sql("UPDATE specdec_evaluations SET phases = '{\"odd\": 1}'")
        with pytest.raises(StoreError, match="PhaseSeconds that this version cannot read: odd"):
            store.evaluations.get(asked.key)

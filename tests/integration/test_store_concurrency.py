"""Many processes on one store, and stores that break: exact counts, nothing half-written."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from db.engine import Database
from db.models import SCHEMA_REVISION
from db.schemas import SkipProfile
from db.store import Store
from specdec_core.errors import StoreError
from tests.integration import store_examples as examples
from tests.integration import store_workers as workers

SYSTEMS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
PROCESS_TIMEOUT_S = 120


@pytest.fixture(params=SYSTEMS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of each system."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new' / 'specdec.db'}"
    answer: str = request.getfixturevalue("postgres_url")
    return answer


def run_processes(
    work: Callable[..., None], num_processes: int, url: str, num_writes: int = 0
) -> tuple[list[int | None], list[Any]]:
    """Run `work` in processes started together; return their exit codes and answers."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([workers.__name__])  # one import for all processes
    answers = context.Queue()
    processes = [
        context.Process(target=work, args=(url, worker, num_writes, answers))
        for worker in range(num_processes)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PROCESS_TIMEOUT_S)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    collected = []
    while not answers.empty():
        collected.append(answers.get(timeout=10))
    return codes, collected


def test_eight_processes_write_without_loss(url: str) -> None:
    codes, _ = run_processes(workers.write_evaluations, 8, url, 50)
    assert codes == [0] * 8
    with Store.open(url) as store:
        assert store.evaluations.count("done") == 400
        keys = [row.key for row in store.evaluations.list(status="done", limit=None)]
        assert all(len(store.evaluations.samples(key)) == 1 for key in keys[::40])
        (shared,) = store.evaluations.list(status="failed")
        assert shared.attempts == 400


def test_the_same_result_from_many_processes_is_stored_once(url: str) -> None:
    codes, num_new = run_processes(workers.put_the_same, 4, url, 20)
    assert codes == [0] * 4
    assert sum(num_new) == 20
    with Store.open(url) as store:
        assert store.evaluations.count() == 20
        rows = store.evaluations.list(limit=None)
        assert {len(store.evaluations.samples(row.key)) for row in rows} == {2}
        assert {row.attempts for row in rows} == {1}


def test_five_processes_open_an_empty_place_at_once(url: str) -> None:
    codes, revisions = run_processes(workers.open_only, 5, url)
    assert codes == [0] * 5
    assert revisions == [SCHEMA_REVISION] * 5
    database = Database.connect(url)
    with database.read() as connection:
        query = "SELECT count(*) FROM specdec_alembic_version"
        assert connection.exec_driver_sql(query).scalar() == 1
    database.close()


def test_concurrent_publishers_leave_one_active_and_every_version(url: str) -> None:
    codes, _ = run_processes(workers.publish, 2, url, 8)
    assert codes == [0] * 2
    with Store.open(url) as store:
        profiles = store.profiles.list(limit=None)
        assert sorted(profile.version or 0 for profile in profiles) == [*range(1, 17)]
        active = [profile for profile in profiles if profile.status == "active"]
        assert [profile.version for profile in active] == [16]


def test_concurrent_activations_leave_one_active_after_every_move(url: str) -> None:
    with Store.open(url) as store:
        store.targets.put(examples.target())
        for skip in ("a3", "a4"):
            run = examples.make_run(store)
            store.profiles.publish(examples.profile(run.id, skip=skip, status="validated"))
    codes, _ = run_processes(workers.activate_in_turns, 3, url, 12)
    assert codes == [0] * 3
    with Store.open(url) as store:
        assert store.profiles.count(status="active") == 1
        moves = [*store.profiles.transitions(1), *store.profiles.transitions(2)]
        assert len(moves) > 4
        statuses: dict[int, str | None] = {}
        for move in sorted(moves, key=lambda each: each.id):
            assert statuses.get(move.profile_id) == move.from_status
            statuses[move.profile_id] = move.to_status
            assert sum(status == "active" for status in statuses.values()) <= 1
        assert statuses == {each.id: each.status for each in store.profiles.list()}


@pytest.mark.parametrize("work", [workers.die_before_samples, workers.die_after_samples])
def test_a_process_killed_inside_a_put_leaves_nothing(url: str, work: Callable[..., None]) -> None:
    Store.open(url).close()
    codes, _ = run_processes(work, 1, url)
    assert codes == [-signal.SIGKILL]
    asked = examples.request()
    with Store.open(url) as store:
        assert store.evaluations.row(asked.key) is None
        assert store.evaluations.samples(asked.key) == ()
        assert store.evaluations.put(asked, examples.result(asked)) is True
        assert store.evaluations.get(asked.key) == examples.result(asked)


def test_readers_do_not_wait_for_a_writer(store: Store) -> None:
    stored = store.profiles.publish(examples.profile(examples.make_run(store).id))
    found: list[SkipProfile] = []

    def resolve() -> None:
        found.append(store.profiles.resolve(stored.target, stored.domain))

    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE specdec_skip_profiles SET status = 'retired'")
        reader = threading.Thread(target=resolve)
        reader.start()
        reader.join(10)
        assert found == [stored]  # the state before the open transaction
    with pytest.raises(LookupError):
        store.profiles.resolve(stored.target, stored.domain)


def test_a_full_database_is_named_and_keeps_what_it_had(store: Store) -> None:
    asked = examples.request()
    store.evaluations.put(asked, examples.result(asked))
    store.close()

    @event.listens_for(store.database.writer, "connect")
    def limit(connection: Any, _record: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages}")

    large = examples.request(item_ids=tuple(str(number) for number in range(2000)))
    with pytest.raises(StoreError, match="is full: free disk space"):
        store.evaluations.put(large, examples.result(large))
    assert store.evaluations.row(large.key) is None
    assert store.evaluations.get(asked.key) == examples.result(asked)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with socket.socket() as probe:  # bound and not listening: connections are refused
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        with pytest.raises(StoreError, match=r"cannot be reached.*start the server") as caught:
            Store.open(f"postgresql://specdec:hidden-word@127.0.0.1:{port}/specdec")
    assert f"127.0.0.1:{port}/specdec" in str(caught.value)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.postgres
def test_a_server_that_ends_the_session_is_reached_again(
    postgres_url: str, postgres_server: Any
) -> None:
    with Store.open(postgres_url) as store:
        run = examples.make_run(store)
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{postgres_url.rpartition('/')[2]}'"
        )
        assert store.runs.get(run.id) == run


@pytest.mark.postgres
def test_a_database_that_does_not_exist_is_named(postgres_server: Any) -> None:
    with pytest.raises(StoreError, match=r"cannot be reached.*does not exist"):
        Store.open(postgres_server.url("missing"))


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder: give the path of a file"):
        Store.open(f"sqlite:///{tmp_path}")


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match=r"cannot be opened.*choose a folder"):
        Store.open(f"sqlite:///{tmp_path / 'file' / 'specdec.db'}")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "specdec.db"
    path.write_text("these are more than sixteen letters, but no database\n" * 100)
    with pytest.raises(StoreError, match="is not a SQLite database: move the file away"):
        Store.open(f"sqlite:///{path}")


READ_ONLY = """
import os, sys
from db.store import Store
from specdec_core.errors import StoreError
Store.open(sys.argv[2]).close()  # everything is imported while this user may still read it
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    Store.open(sys.argv[1])
except StoreError as error:
    print(error)
"""


def test_a_read_only_folder(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where another user can look, too
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [
                *(sys.executable, "-c", READ_ONLY),
                *(f"sqlite:///{folder}/specdec.db", f"sqlite:///{tmp_path}/other.db"),
            ],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        Path(folder).chmod(0o755)
        assert "cannot be opened" in done.stdout
        assert "Permission denied" in done.stdout
        assert list(Path(folder).iterdir()) == []

"""Claims on evaluations: one process at a time, free again when it gives them up or dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from db.store import Store

SYSTEMS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
REPOSITORY = Path(__file__).resolve().parents[2]
HOLDER = """
import sys, time
from db.store import Store
with Store.open(sys.argv[1]) as store:
    sys.stdout.write(f"{store.claims.take(sys.argv[2])}\\n")
    sys.stdout.flush()
    time.sleep(600)
"""
KEY, OTHER = "a" * 64, "b" * 64


@pytest.fixture(params=SYSTEMS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of each system."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'specdec.db'}"
    answer: str = request.getfixturevalue("postgres_url")
    return answer


def test_a_key_is_claimed_by_one_store_at_a_time(url: str) -> None:
    with Store.open(url) as first, Store.open(url) as second:
        assert first.claims.take(KEY)
        assert first.claims.take(KEY)  # it has it
        assert not second.claims.take(KEY)
        assert second.claims.take(OTHER)
        second.claims.release(KEY)  # not its own
        assert not second.claims.take(KEY)
        first.claims.release(KEY)
        assert second.claims.take(KEY)
        assert not first.claims.take(KEY)


def test_closing_a_store_gives_its_claims_up(url: str) -> None:
    with Store.open(url) as second:
        with Store.open(url) as first:
            assert first.claims.take(KEY)
            assert not second.claims.take(KEY)
        assert second.claims.take(KEY)


def test_keys_that_share_a_lock_are_released_one_by_one(tmp_path: Path) -> None:
    """The first characters of a key name the file that is locked."""
    url = f"sqlite:///{tmp_path / 'specdec.db'}"
    sibling = KEY[:32] + "c" * 32
    with Store.open(url) as first, Store.open(url) as second:
        assert first.claims.take(KEY)
        assert first.claims.take(sibling)
        first.claims.release(KEY)
        assert not second.claims.take(KEY)  # it waits, which is harmless
        first.claims.release(sibling)
        assert second.claims.take(KEY)


def test_a_killed_process_holds_nothing(url: str) -> None:
    Store.open(url).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url, KEY],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    with Store.open(url) as store:
        assert not store.claims.take(KEY)
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        assert wait_for(store, KEY)


def wait_for(store: Store, key: str, num_tries: int = 100) -> bool:
    """A server notices a dead client at once, but not in the same moment."""
    for _ in range(num_tries):
        if store.claims.take(key):
            return True
        time.sleep(0.05)
    return False

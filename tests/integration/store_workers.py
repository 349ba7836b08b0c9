"""What the processes of the concurrency tests run; imported anew in each of them."""

from __future__ import annotations

import os
import signal
from typing import Any

from sqlalchemy import event

from db.store import Store
from specdec_core.errors import StoreError
from tests.integration import store_examples as examples


def write_evaluations(url: str, worker: int, num_writes: int, _answers: Any) -> None:
    """Store evaluations of this worker's own, and a failure of one that all workers share."""
    shared = examples.request(skip="a1")
    with Store.open(url) as store:
        for number in range(num_writes):
            asked = examples.request(item_ids=(f"{worker}-{number}",))
            store.evaluations.put(asked, examples.result(asked))
            store.evaluations.fail(shared, "Test", f"worker {worker}")


def put_the_same(url: str, _worker: int, num_writes: int, answers: Any) -> None:
    """Store the same evaluations as every other worker; answer how many were new."""
    with Store.open(url) as store:
        num_new = 0
        for number in range(num_writes):
            asked = examples.request(max_new_tokens=number + 1)
            num_new += store.evaluations.put(asked, examples.result(asked))
        answers.put(num_new)


def open_only(url: str, _worker: int, _num: int, answers: Any) -> None:
    """Open the store, creating it if this process is first, and answer its revision."""
    try:
        with Store.open(url) as store:
            answers.put(store.schema_revision())
    except StoreError as error:
        answers.put(str(error))


def publish(url: str, worker: int, num_writes: int, _answers: Any) -> None:
    """Publish active profiles for one key."""
    with Store.open(url) as store:
        for number in range(num_writes):
            run = examples.make_run(store)
            skip = f"a{1 + (worker * num_writes + number) % 16}"
            store.profiles.publish(examples.profile(run.id, skip=skip))


def activate_in_turns(url: str, worker: int, num_writes: int, _answers: Any) -> None:
    """Activate the first and the second profile of the store, over and over."""
    with Store.open(url) as store:
        for number in range(num_writes):
            cause = examples.cause(f"worker {worker}")
            store.profiles.move(1 + (worker + number) % 2, "active", cause)


def die_before_samples(url: str, _worker: int, _num: int, _answers: Any) -> None:
    """Be killed when the evaluation is sent and its samples are not."""
    _die_in_put(url, "before_cursor_execute")


def die_after_samples(url: str, _worker: int, _num: int, _answers: Any) -> None:
    """Be killed when everything is sent and nothing is committed."""
    _die_in_put(url, "after_cursor_execute")


def _die_in_put(url: str, moment: str) -> None:
    store = Store.open(url)

    def kill(_c: Any, _cur: Any, statement: str, _p: Any, _ctx: Any, _many: bool) -> None:
        if statement.startswith("INSERT INTO specdec_sample_results"):
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(store.database.writer, moment, kill)
    asked = examples.request()
    store.evaluations.put(asked, examples.result(asked))

"""What workers begin, and when: certain work fills rests, timed work runs alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from tasks.dispatch import Dispatcher
from tests.scripted_pool import Clock, ScriptedPool
from tests.table_evaluator import Control, TableEvaluator, workload


@pytest.fixture
def run_id(store: Store) -> str:
    return store.runs.create("tss-search", "translation", {}, {}).id


def ask(skip: str, *, is_timed: bool = False) -> EvaluationRequest:
    return workload().request(
        skip=skip, drafter="none", item_ids=["item-01"], max_new_tokens=8, is_timed=is_timed
    )


class Scene:
    """A dispatcher over scripted workers."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        control: Control,
        num_workers: int,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        clock = Clock()
        self.pool = ScriptedPool(
            num_workers, TableEvaluator(control.folder), clock, seconds=seconds or {}
        )
        self.dispatcher = Dispatcher(store, lambda _stop: self.pool, run_id, clock=clock)

    def submit(self, *requests: EvaluationRequest) -> None:
        self.dispatcher.submit([("selection", request) for request in requests])

    def finish(self) -> list[str]:
        answers = []
        while not self.dispatcher.is_idle:
            answers += self.dispatcher.wait()
        return [answer.request.skip for answer in answers]


def test_certain_work_fills_the_rest_of_a_worker_at_a_level_barrier(
    store: Store, run_id: str, control: Control
) -> None:
    scene = Scene(store, run_id, control, 2, {"1": 3.0})
    scene.dispatcher.offer([("control-dense", ask("4"))])
    scene.submit(ask("1"))
    scene.submit(ask("2"))
    assert scene.finish() == ["2", "1"]  # no answer to what was only offered
    # 1 takes three seconds, 2 takes one: its worker has nothing else to do but what was offered.
    assert scene.pool.events == [
        ("begin", "1"),
        ("begin", "2"),
        ("end", "2"),
        ("begin", "4"),
        ("end", "4"),
        ("end", "1"),
    ]
    used = scene.dispatcher.utilisation()
    assert used is not None
    assert (used.busy_s, used.present_s) == (5.0, 6.0)
    assert (used.idle_nothing_s, used.idle_alone_s, used.idle_queued_s) == (1.0, 0.0, 0.0)
    assert store.evaluations.summary(ask("4").key) is not None
    roles = {each.role for each in store.runs.evaluations(run_id)}
    assert roles == {"selection", "control-dense"}


def test_offered_work_never_goes_before_what_is_asked(
    store: Store, run_id: str, control: Control
) -> None:
    scene = Scene(store, run_id, control, 1)
    scene.dispatcher.offer([("control-dense", ask("4"))])
    for skip in ("1", "2"):
        scene.submit(ask(skip))
    assert [scene.dispatcher.wait()[0].request.skip for _ in range(2)] == ["1", "2"]
    scene.submit(ask("3"))  # the next level, known as soon as the last answer is told
    scene.finish()
    begun = [name for what, name in scene.pool.events if what == "begin"]
    assert begun == ["1", "2", "3", "4"]


def test_what_was_offered_is_handed_out_once_it_is_asked_for(
    store: Store, run_id: str, control: Control
) -> None:
    scene = Scene(store, run_id, control, 1)
    scene.dispatcher.offer([("control-dense", ask("4"))])
    scene.submit(ask("4"))
    assert scene.finish() == ["4"]
    assert [name for what, name in scene.pool.events if what == "begin"] == ["4"]
    assert scene.dispatcher.patient_s == 0.0  # the caller counts what it is handed


def test_timed_groups_run_alone_and_are_not_overtaken(
    store: Store, run_id: str, control: Control
) -> None:
    scene = Scene(store, run_id, control, 2, {"1": 2.0})
    scene.submit(ask("1"))
    scene.submit(ask("2", is_timed=True), ask("3", is_timed=True))
    scene.submit(ask("4"))
    scene.dispatcher.offer([("control-dense", ask("2,3"))])
    scene.finish()
    assert scene.pool.events == [
        ("begin", "1"),
        ("end", "1"),
        ("begin", "2"),
        ("end", "2"),
        ("begin", "3"),
        ("end", "3"),
        ("begin", "4"),
        ("begin", "2,3"),
        ("end", "4"),
        ("end", "2,3"),
    ]
    used = scene.dispatcher.utilisation()
    assert used is not None
    # The other worker rests for 2 s before and for 2 s beside the timed group: on purpose.
    assert (used.idle_alone_s, used.idle_nothing_s, used.idle_queued_s) == (4.0, 0.0, 0.0)


def test_what_another_process_has_claimed_is_waited_for_and_not_done(
    store: Store, run_id: str, control: Control
) -> None:
    scene = Scene(store, run_id, control, 2)
    with Store.open(store.database.url.render_as_string()) as other:
        assert other.claims.take(ask("1").key)
        scene.submit(ask("1"))
        scene.submit(ask("2"))
        assert [answer.request.skip for answer in scene.dispatcher.wait()] == ["2"]
        assert scene.dispatcher.wait(0.0) == []
        result = TableEvaluator(control.folder).run(ask("1"), lambda: False)
        other.evaluations.put(ask("1"), result)
        other.claims.release(ask("1").key)
    (answer,) = scene.dispatcher.wait(0.0)
    assert (answer.request.skip, answer.source) == ("1", "store")
    assert scene.dispatcher.is_idle
    assert [name for what, name in scene.pool.events if what == "begin"] == ["2"]


def test_what_another_process_gave_up_is_taken_over(
    store: Store, run_id: str, control: Control
) -> None:
    scene = Scene(store, run_id, control, 1)
    with Store.open(store.database.url.render_as_string()) as other:
        assert other.claims.take(ask("1").key)
        scene.submit(ask("1"))
        assert scene.dispatcher.wait(0.0) == []
    assert scene.finish() == ["1"]
    assert scene.dispatcher.answers.num_evaluated == 1


def test_claims_are_free_again_when_results_are_stored_or_the_run_ends(
    store: Store, run_id: str, control: Control
) -> None:
    scene = Scene(store, run_id, control, 1)
    scene.submit(ask("1"))
    with Store.open(store.database.url.render_as_string()) as other:
        assert not other.claims.take(ask("1").key)
        scene.finish()
        assert other.claims.take(ask("1").key)
        scene.submit(ask("2"))
        assert not other.claims.take(ask("2").key)
        scene.dispatcher.close()
        assert other.claims.take(ask("2").key)

"""What the repositories of trainings and draft checkpoints must do on every database system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from db.store import Store
from db.training import DraftCheckpoint
from specdec_core.errors import ConfigError, StoreError
from tests.integration import store_examples as examples


class TrainingConformance:
    """Subclass and supply `database_url`, the URL of an empty database."""

    @pytest.fixture
    def store(self, database_url: str) -> Iterator[Store]:
        with Store.open(database_url) as store:
            yield store

    # Trainings

    def test_a_training_changes_until_it_is_done_and_keeps_its_start(self, store: Store) -> None:
        run = examples.make_run(store)
        begun = examples.training(run.id, curve=())
        assert store.trainings.get(begun.key) is None
        assert store.trainings.put(begun) is True
        later = examples.training(run.id)
        assert store.trainings.put(later) is True
        stored = store.trainings.get(begun.key)
        assert stored == later.model_copy(update={"created_at": begun.created_at})
        done = later.model_copy(
            update={"status": "done", "checkpoint": "c" * 64, "outcome": {"best_step": 50}}
        )
        assert store.trainings.put(done) is True
        assert store.trainings.put(begun) is False
        stored = store.trainings.get(begun.key)
        assert stored == done.model_copy(update={"created_at": begun.created_at})
        assert (store.trainings.count(), store.trainings.count("running")) == (1, 0)
        assert store.trainings.put(begun, is_again=True) is True
        assert store.trainings.get(begun.key) == begun

    def test_a_training_goes_on_only_while_its_run_does(self, store: Store) -> None:
        ends = ("running", "failed", "cancelled", "completed")
        for end in ends:
            run = examples.make_run(store)
            store.trainings.put(examples.training(run.id, key=end))
            store.runs.update(run.id, status=end)
        done = examples.training(run.id, key="done", status="done", checkpoint="c" * 64)
        store.trainings.put(done)
        found = {one.key: one.status for one in store.trainings.list()}
        assert found == {
            "running": "running",
            "failed": "failed",
            "cancelled": "cancelled",
            "completed": "failed",
            "done": "done",
        }
        assert [one.key for one in store.trainings.list(status="running")] == ["running"]
        assert [store.trainings.count(status) for status in ("failed", "done", None)] == [2, 1, 5]
        lost = store.trainings.get("failed")
        assert lost is not None
        assert lost.status == "failed"
        again = lost.model_copy(update={"run_id": examples.make_run(store).id})
        assert store.trainings.put(again) is True
        assert store.trainings.get("failed") == again.model_copy(update={"status": "running"})

    def test_a_resumed_training_belongs_to_the_run_that_goes_on_with_it(self, store: Store) -> None:
        runs = [examples.make_run(store) for _ in range(2)]
        for run in runs:
            store.trainings.put(examples.training(run.id))
        assert store.trainings.list(run_id=runs[0].id) == []
        assert [one.key for one in store.trainings.list(run_id=runs[1].id)] == ["k" * 64]

    def test_trainings_are_filtered_newest_first(self, store: Store) -> None:
        run = examples.make_run(store)
        for key, changes in {
            "1": {},
            "2": {"loss": "kl", "target": "hf:other", "target_identity": "b"},
            "3": {"loss": "kl", "draft_kind": "eagle", "draft": "eagle"},
        }.items():
            store.trainings.put(examples.training(run.id, key=key, **changes))

        def keys(**filters: Any) -> str:
            return "".join(one.key for one in store.trainings.list(**filters))

        assert (keys(), keys(loss="kl"), keys(kind="pruned")) == ("321", "32", "21")
        assert (keys(target="hf:other"), keys(target="a" * 64)) == ("2", "31")
        assert (keys(status="done"), keys(limit=1, offset=1)) == ("", "2")

    def test_trainings_are_whole(self, store: Store) -> None:
        run = examples.make_run(store)
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.trainings.put(examples.training("x"))
        with pytest.raises(StoreError, match="contradicts what is stored"):
            store.trainings.put(examples.training(run.id, status="done"))
        broken = examples.training(run.id, outcome={"loss": float("nan")})
        with pytest.raises(StoreError, match="cannot hold a value"):
            store.trainings.put(broken)
        assert store.trainings.list() == []

    # Checkpoints

    def registered(self, store: Store, **changes: Any) -> DraftCheckpoint:
        run = examples.make_run(store)
        store.trainings.put(examples.training(run.id))
        return store.checkpoints.register(examples.checkpoint(run.id, **changes))

    def test_the_same_files_are_one_checkpoint_wherever_they_are(self, store: Store) -> None:
        first = self.registered(store)
        assert (first.id, first.state, first.evaluation_key) == (1, "candidate", None)
        moved = self.registered(store, folder="/elsewhere", step=99, loss="kl")
        assert moved == first.model_copy(update={"folder": "/elsewhere"})
        assert store.checkpoints.get(1) == store.checkpoints.find("c" * 64) == moved
        assert [store.checkpoints.get(number) for number in (2, 0, -1, 10**22)] == [None] * 4
        assert store.checkpoints.find("x") is None

    def test_registering_anew_keeps_what_was_found_out(self, store: Store) -> None:
        first = self.registered(store)
        assert store.checkpoints.evaluation(first.content_hash) is None
        judged = store.checkpoints.judge(
            first.content_hash,
            state="validated",
            reason="within 0.02 at every depth",
            evaluation_key="e" * 64,
            evaluation={"gap": 0.01},
            realised_length=1.48,
            realised_acceptance=(0.74, 0.5),
        )
        assert (judged.state, judged.realised_acceptance) == ("validated", (0.74, 0.5))
        exported = store.checkpoints.note_exports(first.content_hash, ["/out/hf"])
        assert exported == judged.model_copy(update={"exports": ("/out/hf",)})
        assert self.registered(store) == exported
        assert store.checkpoints.evaluation(first.content_hash) == {"gap": 0.01}

    def test_lineage_follows_parents_to_the_first(self, store: Store) -> None:
        self.registered(store, content_hash="1")
        self.registered(store, content_hash="2", parent_hash="1", phase=2)
        self.registered(store, content_hash="3", parent_hash="2", phase=2)
        assert [each.content_hash for each in store.checkpoints.lineage("3")] == ["2", "1"]
        assert store.checkpoints.lineage("1") == store.checkpoints.lineage("x") == []
        self.registered(store, content_hash="4", parent_hash="4")
        assert store.checkpoints.lineage("4") == []

    def test_checkpoints_are_filtered_newest_first(self, store: Store) -> None:
        self.registered(store, content_hash="1")
        self.registered(store, content_hash="2", loss="kl", target="hf:b", target_identity="b")
        last = self.registered(store, content_hash="3", draft_kind="eagle", draft="eagle")
        nothing = {"realised_length": None, "realised_acceptance": ()}
        store.checkpoints.judge(
            "2", state="rejected", reason="gap", evaluation_key="e", evaluation={}, **nothing
        )

        def hashes(**filters: Any) -> str:
            counted = {n: v for n, v in filters.items() if n not in {"limit", "offset"}}
            found = store.checkpoints.list(**filters)
            assert len(found) <= store.checkpoints.count(**counted)
            return "".join(one.content_hash for one in found)

        assert (hashes(), hashes(loss="wtv"), hashes(kind="pruned")) == ("321", "31", "21")
        assert (hashes(state="rejected"), hashes(state="candidate")) == ("2", "31")
        assert (hashes(target="hf:b"), hashes(target="a" * 64)) == ("2", "31")
        assert (hashes(run_id=last.run_id), hashes(limit=1, offset=2)) == ("3", "1")
        assert store.checkpoints.count(kind="pruned", state="rejected") == 1
        with pytest.raises(ConfigError, match="limit -1"):
            store.checkpoints.list(limit=-1)

    def test_checkpoints_need_their_training(self, store: Store) -> None:
        run = examples.make_run(store)
        with pytest.raises(StoreError, match=r"training 'kkk.*' is not stored: put it before"):
            store.checkpoints.register(examples.checkpoint(run.id))
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.checkpoints.register(examples.checkpoint("x"))
        with pytest.raises(StoreError, match="checkpoint 'x' is not stored: register it"):
            store.checkpoints.note_exports("x", [])

"""How profiles live on every database system: moves, their record, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from db.schemas import ProfileStatus, SkipProfile
from db.store import Store
from specdec_core.errors import ConfigError, ProfileNotFoundError, StoreError
from tests.integration import store_examples as examples

CHAINS = {
    "candidate": ("candidate",),
    "validated": ("candidate", "validated"),
    "active": ("candidate", "validated", "active"),
    "rejected": ("candidate", "rejected"),
    "retired": ("candidate", "validated", "active", "retired"),
}
ALLOWED = {
    ("candidate", "validated"),
    ("candidate", "rejected"),
    ("validated", "active"),
    ("validated", "retired"),
    ("active", "retired"),
    ("retired", "active"),
}


class LifecycleConformance:
    """Subclass and supply `database_url`, the URL of an empty database."""

    @pytest.fixture
    def store(self, database_url: str) -> Iterator[Store]:
        with Store.open(database_url) as store:
            store.targets.put(examples.target())
            yield store

    def put(self, store: Store, status: str, **changes: object) -> SkipProfile:
        """Store a profile of a run of its own that has come as far as `status`."""
        first = "active" if status == "retired" else status
        run = examples.make_run(store)
        stored = store.profiles.publish(examples.profile(run.id, status=first, **changes))
        if status == "retired":
            return store.profiles.move(stored.id or 0, "retired", examples.cause())
        return stored

    def moves(self, store: Store, profile: SkipProfile) -> list[tuple[str | None, str]]:
        return [
            (each.from_status, each.to_status)
            for each in store.profiles.transitions(profile.id or 0)
        ]

    @pytest.mark.parametrize("status", sorted(CHAINS))
    def test_every_status_has_the_moves_that_lead_to_it(self, store: Store, status: str) -> None:
        chain = CHAINS[status]
        stored = self.put(store, status)
        assert stored.status == status
        assert self.moves(store, stored) == [*zip((None, *chain), chain, strict=False)]

    def test_only_the_moves_of_the_table_are_made(self, store: Store) -> None:
        statuses = get_args(ProfileStatus)
        for start in statuses:
            for end in statuses:
                stored = self.put(store, start, domain=f"{start}-{end}")
                before = self.moves(store, stored)
                if (start, end) in ALLOWED:
                    assert store.profiles.move(stored.id or 0, end, examples.cause()).status == end
                    assert self.moves(store, stored) == [*before, (start, end)]
                elif start == end:
                    assert store.profiles.move(stored.id or 0, end, examples.cause()) == stored
                    assert self.moves(store, stored) == before
                else:
                    with pytest.raises(ConfigError, match=f"is {start} and cannot become {end}"):
                        store.profiles.move(stored.id or 0, end, examples.cause())
                    assert store.profiles.get(stored.id or 0) == stored
                    assert self.moves(store, stored) == before

    def test_a_move_says_who_made_it_when_and_why(self, store: Store) -> None:
        run = examples.make_run(store)
        first = store.profiles.publish(examples.profile(run.id))
        second = self.put(store, "validated", skip="a4")
        cause = examples.cause("the first is slow on the new machine")
        store.profiles.move(second.id or 0, "active", cause)
        published = store.profiles.transitions(first.id or 0)[0]
        assert (published.run_id, published.reason, published.actor) == (run.id, first.reason, "")
        retired = store.profiles.transitions(first.id or 0)[-1]
        activated = store.profiles.transitions(second.id or 0)[-1]
        assert (activated.reason, activated.command, activated.actor, activated.run_id) == (
            "the first is slow on the new machine",
            "specdec profiles activate 1",
            "ada@lab",
            None,
        )
        assert (retired.to_status, retired.reason) == ("retired", "version 2 became active")
        assert (retired.command, retired.actor) == (activated.command, activated.actor)
        assert published.created_at < retired.created_at <= activated.created_at

    def test_activation_takes_turns_on_one_key_and_a_former_version_comes_back(
        self, store: Store
    ) -> None:
        first = self.put(store, "active")
        second = self.put(store, "validated", skip="a4")
        elsewhere = self.put(store, "active", domain="math")
        for chosen, other in ((second, first), (first, second)):
            active = store.profiles.move(chosen.id or 0, "active", examples.cause())
            assert store.profiles.resolve(first.target, first.domain) == active
            former = store.profiles.get(other.id or 0)
            assert former is not None
            assert former.status == "retired"
        assert store.profiles.resolve(first.target, "math") == elsewhere
        assert store.profiles.count(status="active") == 2

    def test_without_an_active_version_there_is_no_answer(self, store: Store) -> None:
        stored = self.put(store, "active")
        store.profiles.move(stored.id or 0, "retired", examples.cause())
        assert store.profiles.active_name(stored.target, stored.domain) is None
        with pytest.raises(ProfileNotFoundError):
            store.profiles.resolve(stored.target, stored.domain)

    def test_the_active_name_is_that_of_the_resolved_version(self, store: Store) -> None:
        stored = self.put(store, "active")
        self.put(store, "validated", skip="a4")
        asked = (stored.target_identity, stored.domain, "token-recycling:top_k=8", stored.dtype)
        assert store.profiles.active_name(*asked) == (stored.id, stored.run_id)
        assert store.profiles.resolve(*asked) == stored

    def test_a_profile_of_another_target_is_not_activated(self, store: Store) -> None:
        cases = (
            ({"target": "hf:o/m", "target_identity": "c" * 64}, "has never seen"),
            ({"target_identity": "c" * 64}, r"has identity aaaaaaaaaaaa since .*another revision"),
            ({"num_layers": 16}, "is for 16 layers, and target pypi:gemma3-270m has 18"),
        )
        for number, (changes, message) in enumerate(cases):
            stored = self.put(store, "validated", domain=f"domain-{number}", **changes)
            with pytest.raises(ConfigError, match=message):
                store.profiles.move(stored.id or 0, "active", examples.cause())
            assert store.profiles.get(stored.id or 0) == stored

    def test_a_reference_means_the_target_seen_last(self, store: Store) -> None:
        old = self.put(store, "validated")
        store.targets.put(examples.target(identity="b" * 64))
        with pytest.raises(ConfigError, match="another revision"):
            store.profiles.move(old.id or 0, "active", examples.cause())
        store.targets.put(examples.target())  # the checkpoint of before is back
        assert store.profiles.move(old.id or 0, "active", examples.cause()).status == "active"

    def test_a_measurement_decides_about_candidates_alone(self, store: Store) -> None:
        for start, holds, end in (
            ("candidate", True, "validated"),
            ("candidate", False, "rejected"),
            ("validated", False, "validated"),
            ("active", False, "active"),
            ("retired", True, "retired"),
        ):
            stored = self.put(store, start, domain=f"{start}-{holds}")
            run = examples.make_run(store, kind="profile-verify")
            measured = examples.verification(stored.id, run.id, holds=holds)
            cause = examples.cause("measured", run_id=run.id)
            for _ in range(2):  # a retry of the same run stores nothing more
                kept = store.profiles.add_verification(measured, cause)
            assert store.profiles.verifications(stored.id or 0) == [kept]
            assert (kept.heldout, kept.hardware) == (measured.heldout, measured.hardware)
            after = store.profiles.get(stored.id or 0)
            assert after is not None
            assert after.status == end
            last = store.profiles.transitions(stored.id or 0)[-1]
            assert (last.run_id == run.id) == (start != end)

    def test_what_did_not_hold_is_not_activated_until_it_does(self, store: Store) -> None:
        stored = self.put(store, "validated")
        for holds in (False, True):
            run = examples.make_run(store, kind="profile-verify")
            measured = examples.verification(
                stored.id, run.id, holds=holds, reason="the metric fell"
            )
            store.profiles.add_verification(measured, examples.cause())
            if not holds:
                with pytest.raises(ConfigError, match=r"did not hold .*the metric fell"):
                    store.profiles.move(stored.id or 0, "active", examples.cause())
        assert store.profiles.move(stored.id or 0, "active", examples.cause()).status == "active"

    def test_what_cannot_be_is_refused_with_the_reason(self, store: Store) -> None:
        run = examples.make_run(store)
        with pytest.raises(ConfigError, match="cannot be published as retired"):
            store.profiles.publish(examples.profile(run.id, status="retired"))
        with pytest.raises(ProfileNotFoundError, match="there is no profile 99"):
            store.profiles.move(99, "active", examples.cause())
        with pytest.raises(ProfileNotFoundError, match="there is no profile 99"):
            store.profiles.add_verification(examples.verification(99, run.id), examples.cause())
        stored = self.put(store, "validated")
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.profiles.move(stored.id or 0, "active", examples.cause(run_id="x"))
        assert store.profiles.get(stored.id or 0) == stored
        assert store.profiles.transitions(99) == []

    def test_the_database_knows_the_statuses(self, store: Store) -> None:
        self.put(store, "validated")
        with (
            pytest.raises(StoreError, match="contradicts what is stored"),
            store.database.write() as connection,
        ):
            connection.exec_driver_sql("UPDATE specdec_skip_profiles SET status = 'odd'")

    def test_a_retried_publication_finds_what_became_of_its_version(self, store: Store) -> None:
        run = examples.make_run(store)
        waiting = store.profiles.publish(examples.profile(run.id, status="validated"))
        store.profiles.move(waiting.id or 0, "active", examples.cause())
        again = store.profiles.publish(examples.profile(run.id, status="validated"))
        assert (again.id, again.status) == (waiting.id, "active")
        with pytest.raises(StoreError, match=r"as active before .* now as rejected"):
            store.profiles.publish(examples.profile(run.id, status="rejected"))

"""What the repositories of profiles and measurements must do on every database system."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from db.schemas import Baseline
from db.store import Store
from specdec_core.errors import ConfigError, ProfileNotFoundError, StoreError
from tests.integration import store_examples as examples


class ProfileConformance:
    """Subclass and supply `database_url`, the URL of an empty database."""

    @pytest.fixture
    def store(self, database_url: str) -> Iterator[Store]:
        with Store.open(database_url) as store:
            yield store

    # Profiles

    def test_active_profile_retires_the_former(self, store: Store) -> None:
        runs = [examples.make_run(store) for _ in range(3)]
        first = store.profiles.publish(examples.profile(runs[0].id))
        rejected = store.profiles.publish(
            examples.profile(runs[1].id, skip="a4", status="rejected", reason="metric fell")
        )
        assert store.profiles.get(first.id or 0) == first
        second = store.profiles.publish(examples.profile(runs[2].id, skip="", is_dense=True))
        assert (first.version, rejected.version, second.version) == (1, 2, 3)
        assert [p.status for p in store.profiles.history(first.id or 0)] == [
            "active",
            "rejected",
            "retired",
        ]
        assert store.profiles.resolve("pypi:gemma3-270m", "translation") == second
        assert store.profiles.get(99) is None
        assert store.profiles.history(99) == []

    def test_the_database_itself_allows_one_active(self, store: Store) -> None:
        first = store.profiles.publish(examples.profile(examples.make_run(store).id))
        store.profiles.publish(examples.profile(examples.make_run(store).id, skip="a4"))
        with (
            pytest.raises(StoreError, match="contradicts what is stored"),
            store.database.write() as connection,
        ):
            connection.exec_driver_sql(
                f"UPDATE specdec_skip_profiles SET status = 'active' WHERE id = {first.id}"
            )

    def test_keys_have_versions_and_actives_of_their_own(self, store: Store) -> None:
        run = examples.make_run(store)
        stored = [
            store.profiles.publish(examples.profile(run.id, **changes))
            for changes in (
                {},
                {"domain": "math"},
                {"drafter": "prompt-lookup"},
                {"dtype": "float32"},
                {"target_identity": "b" * 64},
            )
        ]
        assert {(p.version, p.status) for p in stored} == {(1, "active")}

    def test_publishing_twice_from_one_run_is_one_version(self, store: Store) -> None:
        run = examples.make_run(store)
        first = store.profiles.publish(examples.profile(run.id))
        assert store.profiles.publish(examples.profile(run.id)) == first
        store.profiles.publish(examples.profile(examples.make_run(store).id, skip="a5"))
        late = store.profiles.publish(examples.profile(run.id))
        assert (late.id, late.status) == (first.id, "retired")
        with pytest.raises(StoreError, match=r"as retired before .* now as rejected"):
            store.profiles.publish(examples.profile(run.id, status="rejected"))
        assert store.profiles.count() == 2

    def test_bad_publications_are_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.profiles.publish(examples.profile("x"))
        stored = store.profiles.publish(examples.profile(examples.make_run(store).id))
        with pytest.raises(ConfigError, match="stored already as version 1"):
            store.profiles.publish(stored)

    def test_resolve_by_reference_or_identity_and_options(self, store: Store) -> None:
        run = examples.make_run(store)
        recycling = store.profiles.publish(
            examples.profile(run.id, drafter="token-recycling:num_nodes=12,update=path")
        )
        lookup = store.profiles.publish(examples.profile(run.id, drafter="prompt-lookup"))
        resolve = store.profiles.resolve
        assert resolve("pypi:gemma3-270m", "translation") == lookup
        assert resolve("a" * 64, "translation", dtype="bfloat16") == lookup
        spelled = "token-recycling:update=path,num_nodes=12,top_k=8"
        assert resolve("a" * 64, "translation", spelled) == recycling

    def test_unresolved_names_the_closest(self, store: Store) -> None:
        with pytest.raises(ProfileNotFoundError, match="none, the store is empty"):
            store.profiles.resolve("pypi:gemma3-270m", "translation")
        run = examples.make_run(store)
        math = store.profiles.publish(
            examples.profile(run.id, domain="math", drafter="prompt-lookup")
        )
        near = store.profiles.publish(examples.profile(run.id, domain="translation"))
        far = store.profiles.publish(
            examples.profile(run.id, target="hf:o/m", target_identity="b", domain="summarization")
        )
        with pytest.raises(ProfileNotFoundError) as caught:
            store.profiles.resolve("pypi:gemma3-270m", "transaltion", "token-recycling")
        assert "domain 'translation'" in str(caught.value)
        closest = store.profiles.closest("pypi:gemma3-270m", "transaltion", "token-recycling")
        assert [(each.profile_id, each.differs) for each in closest] == [
            (near.id, ("domain",)),
            (far.id, ("target", "domain")),
            (math.id, ("domain", "drafter")),
        ]

    def test_profiles_are_filtered_and_paged(self, store: Store) -> None:
        run = examples.make_run(store)
        math = store.profiles.publish(examples.profile(run.id, domain="math"))
        dense = store.profiles.publish(
            examples.profile(run.id, skip="", is_dense=True, status="rejected")
        )
        lists = store.profiles.list
        assert lists() == [dense, math]
        assert lists(limit=1, offset=1) == [math]
        assert lists(domain="math", status="active", target="a" * 64) == [math]
        assert lists(target="pypi:gemma3-270m", drafter="token-recycling:top_k=8") == [dense, math]
        assert store.profiles.count(status="rejected") == 1
        with pytest.raises(ConfigError, match="drafter 'magic' is unknown"):
            lists(drafter="magic")

    # Calibrations, benchmarks, baselines

    def test_latest_calibration_replaces(self, store: Store) -> None:
        store.calibrations.put(examples.calibration())
        shorter = store.calibrations.put(examples.calibration(context_tokens=64))
        newest = store.calibrations.put(examples.calibration())
        assert store.calibrations.list() == [newest, shorter]
        assert store.calibrations.list(target="pypi:gemma3-270m", limit=1) == [newest]
        assert store.calibrations.count(hardware="gpu") == 0
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.calibrations.put(examples.calibration(run_id="x"))

    def test_failed_cell_is_replaced_and_done_cell_is_kept(self, store: Store) -> None:
        run = examples.make_run(store, kind="benchmark")
        failed = examples.cell(run.id, status="failed", figures=None, error="Lost: worker died")
        assert store.benchmarks.put(failed) is True
        done = examples.cell(run.id)
        assert store.benchmarks.put(done) is True
        assert store.benchmarks.put(examples.cell(run.id, hardware="other")) is False
        other = examples.cell(run.id, domain="math")
        store.benchmarks.put(other)
        assert store.benchmarks.list(run.id) == [done, other]
        assert store.benchmarks.list(domain="math", drafter="prompt-lookup") == [other]
        assert store.benchmarks.list(run.id, limit=1, offset=1) == [other]
        assert store.benchmarks.count(run.id) == 2
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.benchmarks.put(examples.cell("x"))

    def test_baseline_keeps_its_history(self, store: Store) -> None:
        runs = [examples.make_run(store, kind="benchmark") for _ in range(2)]
        assert store.baselines.get("nightly") is None
        first = store.baselines.set(Baseline(name="nightly", run_id=runs[0].id, reason="first"))
        again = store.baselines.set(Baseline(name="nightly", run_id=runs[0].id, reason="retry"))
        assert again == first
        second = store.baselines.set(Baseline(name="nightly", run_id=runs[1].id))
        third = store.baselines.set(Baseline(name="nightly", run_id=runs[0].id, reason="back"))
        assert store.baselines.get("nightly") == third
        assert store.baselines.history("nightly") == [third, second, first]
        with pytest.raises(StoreError, match="run 'x' is not stored"):
            store.baselines.set(Baseline(name="nightly", run_id="x"))

"""Stored profiles as checkpoints: figures of the card, and targets that changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, ProfileNotFoundError
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.checkpoints import export_profile
from tests.integration import store_examples as examples


def test_a_profile_becomes_a_checkpoint_with_its_figures(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model", "gemma3", num_layers=5)
    model = resolve_model(f"path:{folder}", settings.cache_dir)
    fields = {
        "target": model.reference,
        "target_identity": model.identity,
        "num_layers": 5,
        "skip": "1,a3",
    }
    published = store.profiles.publish(examples.profile(examples.make_run(store).id, **fields))
    assert published.id is not None
    done = export_profile(published.id, tmp_path / "out", settings)
    assert (done.num_layers, done.skip) == (4, "1,a3")
    card = (tmp_path / "out" / "README.md").read_text()
    held = published.heldout
    assert held is not None
    assert f"| acceptance length, tokens per step | {held.acceptance_dense:.3f} |" in card
    assert f"Profile {published.id}, active: held-out metric stays within tolerance." in card
    assert f"Measured on {held.num_items} held-out items, on test cpu, 2 threads" in card


def test_another_revision_is_refused(store: Store, settings: Settings, tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model")
    fields = {"target": f"path:{folder}", "num_layers": 3, "skip": "1"}
    published = store.profiles.publish(examples.profile(examples.make_run(store).id, **fields))
    assert published.id is not None
    with pytest.raises(ConfigError, match=r"is for files aaaaaaaaaaaa\.\., but path:"):
        export_profile(published.id, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()


def test_a_profile_that_is_not_stored_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ProfileNotFoundError, match="there is no profile 7"):
        export_profile(7, tmp_path / "out", settings)

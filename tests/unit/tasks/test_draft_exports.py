"""Stored checkpoints of drafts as folders for other programs."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from db.cells import CellFigures
from db.schemas import Interval
from db.store import Store
from db.training import DraftCheckpoint
from flows.commands.execute import execute
from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.settings import Settings
from specdec_core.config.training import PrunedDraft
from specdec_core.drafts.provenance_file import read_provenance, write_provenance
from specdec_core.drafts.specs import Provenance
from specdec_core.errors import ConfigError, ExportError
from specdec_core.export.assistant import verify_assistant
from specdec_core.export.eagle_layouts import verify_eagle
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.pruning import prune_target
from tasks.draft_exports import export_draft
from tasks.draft_records import stored_evaluation
from tasks.draft_report import DepthAgreement, DraftCell, DraftEvaluation
from tasks.training_keys import folder_hash
from tests.integration import store_examples as examples
from tests.learned_drafts import write_draft


@pytest.fixture
def target(tmp_path: Path, settings: Settings) -> ResolvedModel:
    folder = write_tiny_checkpoint(tmp_path / "target", num_layers=6)
    return resolve_model(f"path:{folder}", settings.cache_dir)


def checkpoint(
    store: Store, target: ResolvedModel, folder: Path, kind: str, **changes: object
) -> DraftCheckpoint:
    """Register what a training left in `folder`."""
    run = examples.make_run(store)
    store.trainings.put(examples.training(run.id))
    fields: dict[str, Any] = {
        "target": target.reference,
        "target_identity": target.identity,
        "folder": str(folder),
        "draft_kind": kind,
    }
    if "content_hash" not in changes:
        fields["content_hash"] = folder_hash(folder)
    found = store.checkpoints.register(examples.checkpoint(run.id, **fields | changes))
    # As one that was evaluated; the evaluation is what tests are about.
    return found.model_copy(update={"state": "validated"})


def evaluation(target: ResolvedModel, *, is_agreed: bool) -> DraftEvaluation:
    """Return a report of one greedy chain: 30 of 40 steps kept a token, 1.2 times as fast."""
    depth = DepthAgreement(
        depth=1,
        num_trials=40,
        expected=0.75,
        realised=0.75 if is_agreed else 0.25,
        standard_error=0.0,
        is_checked=True,
        is_agreed=is_agreed,
    )
    speedup = Interval(estimate=1.2, low=1.1, high=1.3, confidence=0.95)
    figures = CellFigures(
        num_items=4, num_tokens=80, acceptance_length=1.75, tokens_per_s=60.0, speedup=speedup
    )
    cell = DraftCell(
        domain="qa",
        shape="chain",
        temperature=0.0,
        drafter="draft-model:model=path:/x",
        run_id="r",
        evaluation_key="k",
        figures=figures,
        accepted_per_step=0.75,
        depths=(depth,),
    )
    return DraftEvaluation(
        draft="/x",
        draft_identity="d",
        reference_identity="d",
        target=target.reference,
        target_identity=target.identity,
        config=DraftEvaluationConfig(num_items=4),
        cells=(cell,),
    )


def judge(store: Store, one: DraftCheckpoint, report: DraftEvaluation) -> None:
    store.checkpoints.judge(
        one.content_hash,
        state="validated",
        reason="realised acceptance is the expected one at 1 depths",
        evaluation_key="e",
        evaluation=report.model_dump(mode="json"),
        realised_length=1.75,
        realised_acceptance=(0.75,),
    )


def export(
    store: Store, one: DraftCheckpoint, folder: Path, settings: Settings
) -> tuple[Path, ...]:
    """Export as commands do, with the evaluation that is stored."""
    return export_draft(one, stored_evaluation(store, one), folder, settings)


def test_a_pruned_draft_becomes_an_assistant_model_with_its_figures(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path
) -> None:
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    judge(store, one, evaluation(target, is_agreed=True))
    (folder,) = export(store, one, tmp_path / "out", settings)
    done = verify_assistant(folder)
    assert (done.provenance.template_hash, done.provenance.data_hash) == ("t" * 64, "d" * 64)
    assert done.facts is not None
    assert (done.facts.run_id, done.facts.training_key) == (one.run_id, "k" * 64)
    card = (folder / "README.md").read_text()
    assert "| qa, chain, temperature 0: tokens per step | 1 | 1.750 |  |" in card
    assert "x1.200 [1.100, 1.300]" in card
    assert "Measured at batch 1 on 4 prompts per domain" in card
    before = (folder / "README.md").stat().st_mtime_ns
    assert export(store, one, tmp_path / "out", settings) == (folder,)
    assert (folder / "README.md").stat().st_mtime_ns == before
    # One byte of the weights, as a bad disk leaves it.
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(ExportError, match=r"model\.safetensors has hash .* it was damaged"):
        export(store, one, tmp_path / "out", settings)


def test_the_command_exports_with_the_stored_evaluation_and_notes_where(
    store: Store,
    settings: Settings,
    target: ResolvedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPECDEC_HOME", str(settings.home_dir))
    monkeypatch.setenv("SPECDEC_CACHE", str(settings.cache_dir))
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    words = ["drafts", "export", str(one.id), "--to", str(tmp_path / "out")]
    judge(store, one, evaluation(target, is_agreed=False))
    assert execute(words) == 1
    assert "depth 1: expected 0.750, realised 0.250" in capsys.readouterr().err
    judge(store, one, evaluation(target, is_agreed=True))
    assert execute(words) == 0
    written = tmp_path / "out" / "transformers"
    assert "tokens per step | 1 | 1.750" in (written / "README.md").read_text()
    noted = store.checkpoints.find(one.content_hash)
    assert noted is not None
    assert noted.exports == (str(written),)


def test_the_command_waits_for_another_export_and_keeps_what_that_noted(
    store: Store,
    settings: Settings,
    target: ResolvedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPECDEC_HOME", str(settings.home_dir))
    monkeypatch.setenv("SPECDEC_CACHE", str(settings.cache_dir))
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    judge(store, one, evaluation(target, is_agreed=True))
    words = ["drafts", "export", str(one.id), "--to", str(tmp_path / "out")]
    (settings.home_dir / "drafts").mkdir(parents=True)
    with ThreadPoolExecutor(1) as threads:
        with FileLock(settings.home_dir / "drafts" / f".{one.content_hash[:16]}.lock"):
            waiting = threads.submit(execute, words)
            said = ""
            while "another process evaluates or exports" not in said and not waiting.done():
                said += capsys.readouterr().err
                time.sleep(0.05)
            store.checkpoints.note_exports(one.content_hash, ["/elsewhere/transformers"])
        assert waiting.result() == 0
    noted = store.checkpoints.find(one.content_hash)
    assert noted is not None
    assert noted.exports == ("/elsewhere/transformers", str(tmp_path / "out" / "transformers"))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file", r"folder .*/file cannot be made \(File exists\): name one that you may write to"),
        ("/proc/x", r"folder /proc/x cannot be made \(.*\): name one that you may write to"),
        ("", "--to is empty: name a path"),
        # A file more below it, and its hash is another: it would be trained again.
        ("draft", "is where the draft itself is"),
        ("draft/exports", "is where the draft itself is"),
    ],
)
def test_a_place_that_cannot_hold_an_export_is_refused_in_words(
    store: Store,
    settings: Settings,
    target: ResolvedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    said: str,
) -> None:
    monkeypatch.setenv("SPECDEC_HOME", str(settings.home_dir))
    monkeypatch.setenv("SPECDEC_CACHE", str(settings.cache_dir))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    judge(store, one, evaluation(target, is_agreed=True))
    assert execute(["drafts", "export", str(one.id), "--to", place]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not (tmp_path / "transformers").exists()


@pytest.mark.parametrize("state", ["candidate", "rejected"])
def test_only_validated_drafts_are_exported(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path, state: str
) -> None:
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    judged = one.model_copy(update={"state": state, "reason": "as was measured"})
    said = rf"checkpoint 1 is {state} \(as was measured\): only validated ones are exported"
    with pytest.raises(ConfigError, match=said):
        export(store, judged, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pruned", "eagle"])
def test_the_export_of_another_draft_is_not_taken_for_ones_own(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path, kind: str
) -> None:
    drafts = [tmp_path / name for name in ("first", "second")]
    if kind == "pruned":
        for num_layers, folder in enumerate(drafts, start=2):
            prune_target(target, PrunedDraft(num_layers=num_layers), folder)
    else:
        loaded = load_target(target, dtype="float32", device="cpu")
        for name, folder in zip(("eagle1", "eagle3"), drafts, strict=True):
            write_draft(folder, name, loaded)
    first, second = (checkpoint(store, target, folder, kind) for folder in drafts)
    written = export(store, first, tmp_path / "out", settings)
    with pytest.raises(
        ConfigError,
        match=r"out/\w+ holds the export of another draft .* not of checkpoint 2 .*rm -r",
    ):
        export(store, second, tmp_path / "out", settings)
    assert export(store, first, tmp_path / "out", settings) == written
    (drafts[0] / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"has content .* but checkpoint 1 is"):
        export(store, first, tmp_path / "out", settings)


def test_what_training_says_of_its_texts_goes_along(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path
) -> None:
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    said = Provenance(template_hash="e" * 64, domains=("chat", "qa"), data_hash="f" * 64)
    write_provenance(tmp_path / "draft", said)
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    (folder,) = export(store, one, tmp_path / "out", settings)
    assert verify_assistant(folder).provenance == said
    assert read_provenance(folder) == said


def test_a_head_is_written_in_both_layouts_and_damage_is_noticed_when_asked_again(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path
) -> None:
    loaded = load_target(target, dtype="float32", device="cpu")
    write_draft(tmp_path / "head", "eagle3", loaded)
    one = checkpoint(store, target, tmp_path / "head", "eagle")
    folders = export(store, one, tmp_path / "out", settings)
    done = [verify_eagle(folder) for folder in folders]
    assert [each.layout for each in done] == ["speculators", "sglang"]
    made_by = {(each.facts.run_id, each.facts.training_key) for each in done if each.facts}
    assert made_by == {(one.run_id, "k" * 64)}
    (folders[1] / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ExportError, match=r"model\.safetensors cannot be read"):
        export(store, one, tmp_path / "out", settings)


def test_files_that_were_changed_are_not_exported(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path
) -> None:
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    (tmp_path / "draft" / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"has content .* but checkpoint 1 is .*: bring its"):
        export(store, one, tmp_path / "out", settings)


def test_a_draft_that_decodes_otherwise_than_expected_is_not_exported(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path
) -> None:
    prune_target(target, PrunedDraft(num_layers=2), tmp_path / "draft")
    one = checkpoint(store, target, tmp_path / "draft", "pruned")
    judge(store, one, evaluation(target, is_agreed=False))
    with pytest.raises(
        ExportError,
        match=r"qa, chain, temperature 0, depth 1: expected 0\.750, realised 0\.250 in 40 steps",
    ):
        export(store, one, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()


def test_medusa_has_no_layout_and_another_target_is_refused(
    store: Store, settings: Settings, target: ResolvedModel, tmp_path: Path
) -> None:
    one = checkpoint(store, target, tmp_path / "head", "medusa", content_hash="c" * 64)
    assert export(store, one, tmp_path / "out", settings) == ()
    other = one.model_copy(update={"target_identity": "b" * 64})
    with pytest.raises(ConfigError, match=r"is of target bbbbbbbbbbbb\.\., but path:"):
        export(store, other, tmp_path / "out", settings)

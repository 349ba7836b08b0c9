"""EAGLE and Medusa heads through whole runs in bfloat16: data, training, decoding, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from db.store import Store
from specdec_core.config.learned_drafters import Eagle
from specdec_core.config.settings import Settings
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.drafts.loading import DraftShelf
from specdec_core.drafts.manifest import verify_draft
from specdec_core.drafts.specs import EagleSpec
from specdec_core.errors import ConfigError
from specdec_core.export.eagle_layouts import verify_eagle
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.training.data import DraftData
from tasks.draft_report import DraftEvaluation
from tasks.training_keys import folder_hash
from tasks.training_report import TrainingReport
from tests.draft_prompts import questions, settings_of, write_chat_checkpoint, write_prompts
from tests.tiny_training_runs import tiny_run
from tests.unit.export.served_eagle import ServedEagle
from tests.unit.export.test_eagle_layouts import PLACES, Recorded
from tests.unit.tasks.test_draft_runs import run

GAMMA = 3
THIRD = f"eagle:version=3,num_steps={GAMMA},vocab_size=64"
# What EAGLE-3 reads of a target of six blocks.
TAPS = {"hidden": "taps", "taps": "2/3/4"}
# Of 3 steps.
QUICK: dict[str, Any] = {"precision": "bfloat16", "num_epochs": 1, "gamma": GAMMA}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a target of six blocks, as served layouts name none of EAGLE-3's in fewer."""
    folder = tmp_path_factory.mktemp("models")
    write_chat_checkpoint(folder / "target", num_layers=6, max_position_embeddings=2048)
    write_prompts(folder / "prompts.jsonl", questions(14))
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


@pytest.mark.parametrize(
    ("draft", "options", "exact"),
    [
        (THIRD, {"loss": "kl+0.1eal", **TAPS}, GAMMA),
        (THIRD, {"loss": "kl", "hidden": "none"}, GAMMA),
        ("eagle:version=1", {"loss": "kl"}, 1),
        ("medusa:num_heads=3", {"loss": "wtv"}, GAMMA),
    ],
    ids=["eagle-3", "eagle-3-states-not-stored", "eagle-1", "medusa"],
)
def test_a_learned_head_is_trained_evaluated_registered_and_exported(
    draft: str,
    options: dict[str, Any],
    exact: int,
    models: Path,
    settings: Settings,
    store: Store,
) -> None:
    """`exact` is the number of depths at which training sees what decoding does."""
    config = tiny_run(models, "kl", **{**QUICK, **options, "draft": draft})
    report = run(config, settings, store)
    assert report.notes == ()
    assert report.outcome.num_steps == 3
    assert report.outcome.last.loss < report.outcome.start.loss
    check_registered(report, store, draft.partition(":")[0])
    assert report.evaluation is not None
    check_depths(report, report.evaluation, exact)
    if draft.startswith("medusa"):
        assert report.checkpoint.exports == ()
    else:
        check_layouts(report, models / "target", settings)


def check_registered(report: TrainingReport, store: Store, kind: str) -> None:
    """Check that the store knows the draft, and that the draft says where it comes from."""
    checkpoint = store.checkpoints.find(report.checkpoint.content_hash)
    assert checkpoint == report.checkpoint
    assert (checkpoint.state, checkpoint.draft_kind) == ("validated", kind)
    folder = Path(checkpoint.folder)
    assert folder_hash(folder) == checkpoint.content_hash
    manifest = verify_draft(folder)
    assert manifest.provenance.data_hash == checkpoint.data_hash == report.data.key
    assert manifest.provenance.training["loss"] == checkpoint.loss
    spec = manifest.draft
    assert spec.kind == kind
    if isinstance(spec, EagleSpec):
        is_third = spec.version == 3
        assert ("version=3" in report.draft) == is_third
        assert spec.draft_vocab_size == (64 if is_third else None)
        assert spec.taps == ((2, 3, 4) if is_third else (-1,))


def check_depths(report: TrainingReport, evaluation: DraftEvaluation, exact: int) -> None:
    """Check the figures of both temperatures by hand, from what every step accepted."""
    greedy, drawn = evaluation.cells
    assert (greedy.temperature, drawn.temperature) == (0.0, 1.0)
    for cell in (greedy, drawn):
        assert cell.error is None
        assert cell.is_lossless
        steps = [accepted for sample in cell.samples for accepted in sample.accepted]
        assert cell.accepted_per_step == pytest.approx(sum(steps) / len(steps))
        for depth in cell.depths:
            num_accepted = sum(accepted >= depth.depth for accepted in steps)
            assert depth.realised * depth.num_trials == pytest.approx(num_accepted)
            assert depth.is_agreed or depth.depth > exact
            assert depth.is_checked == (depth.depth <= exact and depth.num_trials >= 4)
    # A likeliest token is accepted or not: what is expected is what happens.
    assert all(one.gap == 0.0 for one in greedy.depths[:exact])
    assert sum(sum(sample.accepted) for sample in drawn.samples) > 0
    own = greedy if report.outcome.criterion == "greedy" else drawn
    assert own.accepted_per_step is not None
    assert report.checkpoint.realised_length == pytest.approx(1.0 + own.accepted_per_step)
    realised = [depth.realised for depth in own.depths if depth.num_trials]
    assert report.checkpoint.realised_acceptance == pytest.approx(realised)


def check_layouts(report: TrainingReport, target: Path, settings: Settings) -> None:
    """Check that an independent reader of either layout proposes what decoding does."""
    source = Path(report.checkpoint.folder)
    manifest = verify_draft(source)
    kind = load_file(source / "model.safetensors")["fc.weight"].dtype
    library = AutoModelForCausalLM.from_pretrained(target, dtype=kind).eval()
    proposals = greedy_proposals(source, target, settings)
    # Near the limit of the output chains are shorter.
    assert sum(len(tokens) == GAMMA for _, tokens in proposals) >= 4
    folders = [Path(place) for place in report.checkpoint.exports]
    assert [folder.name for folder in folders] == ["speculators", "sglang"]
    for folder in folders:
        exported = verify_eagle(folder)
        assert exported.source_identity == manifest.identity
        assert exported.target_identity == report.target_identity
        assert exported.provenance.data_hash == report.data.key
        name = "eagle3" if exported.version == 3 else "eagle"
        reader = ServedEagle(folder, library, *PLACES[name, exported.layout])
        for sequence, tokens in proposals:
            assert reader.chain(sequence, exported.taps, len(tokens)) == tokens


def greedy_proposals(
    folder: Path, target: Path, settings: Settings
) -> list[tuple[list[int], list[int]]]:
    """Return chains that a draft proposes while the target writes, and what is in front of them."""
    model = resolve_model(f"path:{target}", settings.cache_dir)
    loaded = load_target(model, dtype="float32", device="cpu", settings=settings)
    view = loaded.view()
    context = DrafterContext(loaded, view=view, load_draft=DraftShelf(loaded).load)
    options = Eagle(model=str(folder), shape="chain", gamma=GAMMA)
    drafter = Recorded(make_drafter(options, context))
    generate(view, [[5, 90, 17, 200, 3]], [drafter], max_new_tokens=20, eos_ids=())
    return drafter.proposals


def test_states_that_are_not_stored_are_computed_by_the_worker_and_train_the_same_draft(
    models: Path, settings: Settings, store: Store
) -> None:
    """The target writes float32 and states are stored in it, so that not a bit is lost."""
    weights = []
    for options in (TAPS, {"hidden": "none"}):
        config = tiny_run(
            models, "kl", **QUICK, **options, draft=THIRD, evaluate=False, export=False
        )
        report = run(config, settings, store)
        data = DraftData.open(Path(report.data.folder))
        name = next(iter(data.samples))
        if options is TAPS:  # the head's input, and three taps
            assert data.states(name).shape[:2] == (data.lengths[name], 4)
        else:
            with pytest.raises(ConfigError, match="holds no hidden states: load the target"):
                data.states(name)
        weights.append(load_file(Path(report.checkpoint.folder) / "model.safetensors"))
    stored, computed = weights
    assert stored.keys() == computed.keys()
    assert all(torch.equal(computed[name], stored[name]) for name in stored)

"""Drafts in the real decode loop against what training expects, and drafts that were broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from db.store import Store
from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.settings import Settings
from specdec_core.config.training import PrunedDraft
from specdec_core.drafts.provenance_file import write_provenance
from specdec_core.drafts.specs import Provenance
from specdec_core.errors import ConfigError, ExportError
from specdec_core.models.loading import load_target, load_tokenizer
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.masks import serving_hash
from specdec_core.training.pruning import prune_target
from tasks.draft_evaluation import evaluate_draft
from tasks.draft_report import DraftCell, DraftEvaluation
from tasks.evaluator import ModelEvaluatorFactory
from tasks.pool import pool_factory
from tasks.training_setup import TrainingSetup
from tests.learned_drafts import write_draft

NUM_LAYERS = 4


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a target, a draft that is the target itself, and one that is often right.

    The latter lacks an MLP and the last 56 ids. Attention looks back 8 tokens.
    """
    root = tmp_path_factory.mktemp("models")
    options = {"num_layers": NUM_LAYERS, "max_position_embeddings": 2048}
    write_tiny_checkpoint(root / "target", "mistral", **options)
    target = resolve_model(f"path:{root / 'target'}", root / "cache")
    prune_target(target, PrunedDraft(num_layers=NUM_LAYERS), root / "whole")
    shape = PrunedDraft(num_layers=NUM_LAYERS, vocab_size=201)
    prune_target(target, shape, root / "part", counts=torch.arange(257).flip(0))
    weights = load_file(root / "part" / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"].zero_()
    save_file(weights, root / "part" / "model.safetensors", metadata={"format": "pt"})
    return root


def evaluate(
    models: Path,
    settings: Settings,
    store: Store,
    draft: Path,
    *,
    reference: Path | None = None,
    log: list[str] | None = None,
    **changes: object,
) -> DraftEvaluation:
    fields = {
        "target": f"path:{models / 'target'}",
        "dtype": "float32",
        "domains": ("qa",),
        "temperatures": (0.0, 1.0),
        "gamma": 3,
        "branching": (2, 2, 1),
        "num_nodes": 10,
        "num_items": 2,
        "max_new_tokens": 30,
        "min_trials": 4,
    }
    config = DraftEvaluationConfig.model_validate(fields | changes)
    setup = TrainingSetup(
        settings=settings,
        store=store,
        start_pool=pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True),
        log=(log if log is not None else []).append,
    )
    return evaluate_draft(config, setup, draft, reference_folder=reference)


def cell_of(found: DraftEvaluation, shape: str, temperature: float) -> DraftCell:
    (cell,) = (c for c in found.cells if (c.shape, c.temperature) == (shape, temperature))
    return cell


def test_the_target_as_its_own_draft_is_expected_and_found_to_be_always_right(
    models: Path, settings: Settings, store: Store
) -> None:
    found = evaluate(models, settings, store, models / "whole")
    assert found.is_agreed
    found.require_agreement()
    for temperature in (0.0, 1.0):
        chain = cell_of(found, "chain", temperature)
        for depth in chain.depths:
            assert depth.realised == 1.0
            assert depth.expected == pytest.approx(1.0, abs=1e-4)
        assert chain.expected_anywhere == pytest.approx(3.0, abs=1e-3)
        assert chain.is_lossless
    greedy = cell_of(found, "chain", 0.0)
    assert greedy.accepted_per_step is not None
    # The limit cuts the last draft of an output short.
    assert 2.5 < greedy.accepted_per_step <= 3.0
    assert greedy.mean_accepted_tokens == greedy.accepted_per_step + 1.0
    assert greedy.speedup is not None
    assert len(greedy.samples) == 2
    sample = greedy.samples[0]
    assert sum(sample.accepted) + sample.num_steps + 1 == sample.num_tokens == 30
    assert len(sample.seconds) == len(sample.baseline_seconds) == 1


def test_a_partial_draft_does_in_decoding_what_its_training_pass_says(
    models: Path, settings: Settings, store: Store
) -> None:
    """Narrowed too: mass of the target on ids that it lacks is expected to be rejected."""
    found = evaluate(models, settings, store, models / "part", num_items=4)
    assert found.is_agreed, found.failures
    for cell in found.cells:
        first = cell.depths[0]
        assert first.is_checked
        assert 0.0 < first.expected < 1.0
        if cell.temperature == 0.0:
            # Every trial is certain under greedy decoding.
            assert first.standard_error == 0.0
            assert first.realised == pytest.approx(first.expected)
        else:
            assert first.standard_error > 0.0
    tree, chain = (cell_of(found, shape, 0.0).depths[0] for shape in ("tree", "chain"))
    assert tree.expected > chain.expected  # two children instead of one


def test_what_the_store_has_is_not_decoded_again(
    models: Path, settings: Settings, store: Store
) -> None:
    first, again = (
        evaluate(models, settings, store, models / "part", temperatures=(0.0,), shapes=("chain",))
        for _ in range(2)
    )
    assert [c.evaluation_key for c in first.cells] == [c.evaluation_key for c in again.cells]
    assert [c.samples for c in first.cells] == [c.samples for c in again.cells]


@pytest.mark.parametrize("broken", ["weights", "mask", "vocabulary"])
def test_an_export_that_was_broken_fails(
    models: Path, settings: Settings, store: Store, tmp_path: Path, broken: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(models / "whole", out)
    if broken == "weights":
        weights = load_file(out / "model.safetensors")
        weights["model.layers.1.mlp.down_proj.weight"] *= -1.0
        save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    elif broken == "mask":
        config = json.loads((out / "config.json").read_text())
        assert config["sliding_window"] == 8
        (out / "config.json").write_text(json.dumps({**config, "sliding_window": 1}))
    else:
        ids = {"target_ids": [0, *range(200, 257)]}
        (out / "draft_vocab.json").write_text(json.dumps(ids))
    found = evaluate(
        models,
        settings,
        store,
        out,
        reference=models / "whole",
        temperatures=(0.0,),
        shapes=("chain",),
        num_items=2,
    )
    assert not found.is_agreed
    assert found.draft_identity != found.reference_identity
    with pytest.raises(
        ExportError, match=r"accepts otherwise in decoding .* depth 1: expected 1\.0"
    ):
        found.require_agreement()


def test_a_gap_counts_only_where_enough_steps_got_there(
    models: Path, settings: Settings, store: Store
) -> None:
    found = evaluate(
        models,
        settings,
        store,
        models / "part",
        temperatures=(0.0,),
        shapes=("chain",),
        num_items=1,
        min_trials=10_000,
    )
    assert not any(depth.is_checked for cell in found.cells for depth in cell.depths)


@pytest.mark.parametrize("kind", ["eagle", "eagle3-narrow", "medusa"])
def test_learned_drafts_are_judged_at_the_depths_that_training_has_seen(
    models: Path, settings: Settings, store: Store, tmp_path: Path, kind: str
) -> None:
    target = resolve_model(f"path:{models / 'target'}", settings.cache_dir)
    loaded = load_target(target, dtype="float32", device="cpu")
    write_draft(tmp_path / "head", kind, loaded)
    found = evaluate(
        models, settings, store, tmp_path / "head", shapes=("chain",), temperatures=(1.0,)
    )
    assert found.is_agreed, found.failures
    for cell in found.cells:
        assert cell.error is None
        assert cell.depths[0].is_checked
        assert all(not depth.is_checked for depth in cell.depths[1:]) or kind != "eagle"


def test_nothing_is_expected_beyond_the_last_head(
    models: Path, settings: Settings, store: Store, tmp_path: Path
) -> None:
    target = resolve_model(f"path:{models / 'target'}", settings.cache_dir)
    head = tmp_path / "head"
    write_draft(head, "medusa", load_target(target, dtype="float32", device="cpu"))  # of 4 heads
    four, nine = (
        evaluate(
            models,
            settings,
            store,
            head,
            shapes=("chain",),
            temperatures=(1.0,),
            num_items=1,
            gamma=gamma,
        )
        for gamma in (4, 9)
    )
    expected = cell_of(four, "chain", 1.0).expected_anywhere
    assert expected is not None
    assert expected > 0.0
    assert cell_of(nine, "chain", 1.0).expected_anywhere == expected


def test_other_templates_are_named_with_both_hashes(
    models: Path, settings: Settings, store: Store, tmp_path: Path
) -> None:
    draft, reference = tmp_path / "draft", f"path:{models / 'target'}"
    shutil.copytree(models / "part", draft)
    tokenizer = load_tokenizer(models / "target")
    served = serving_hash(tokenizer, "base", ("qa",))
    for trained, is_warned in (("ab" * 32, True), (served, False)):
        origin = Provenance(template_hash=trained, domains=("qa",))
        write_provenance(draft, origin)
        log: list[str] = []
        found = evaluate(
            models, settings, store, draft, log=log, temperatures=(0.0,), shapes=("chain",)
        )
        assert (found.template_hash, found.served_template_hash) == (trained, served)
        text = f"trained on texts of template abababababab.., but {reference} is asked with"
        warned = [line for line in log if text in line and served[:12] in line]
        assert bool(warned) == is_warned == any(text in note for note in found.notes)


def test_a_reference_of_another_kind_is_refused(
    models: Path, settings: Settings, store: Store, tmp_path: Path
) -> None:
    target = resolve_model(f"path:{models / 'target'}", settings.cache_dir)
    write_draft(tmp_path / "head", "eagle", load_target(target, dtype="float32", device="cpu"))
    with pytest.raises(ConfigError, match="holds a draft of kind 'model', but"):
        evaluate(models, settings, store, models / "part", reference=tmp_path / "head")
    with pytest.raises(ConfigError, match=r"has no readable config\.json"):
        evaluate(models, settings, store, tmp_path / "nothing")

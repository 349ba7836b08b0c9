"""A causal language model as a trainable draft: padding, saving, narrowed vocabularies."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from specdec_core.errors import ConfigError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.draft_model import DraftModel
from specdec_core.training.losses.counts import PassRows
from tests.tiny_training import make_batch, make_samples, tiny_draft

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "qwen2"
    return write_tiny_checkpoint(folder, "qwen2", num_layers=2, dtype="bfloat16")


def test_padding_changes_nothing(tmp_path: Path) -> None:
    draft, samples = tiny_draft(tmp_path), make_samples(6)
    names = sorted(samples)
    together = draft.forward(make_batch(samples, names)).passes[0].hidden
    for row, name in enumerate(names):
        alone = draft.forward(make_batch(samples, [name])).passes[0].hidden[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=0, atol=1e-9)


def test_rows_and_head_are_those_of_the_library(tmp_path: Path) -> None:
    draft, batch = tiny_draft(tmp_path), make_batch(make_samples(2), ["s000"])
    (one,) = draft.forward(batch).passes
    logits = one.hidden @ one.head.weight.T
    expected = draft.module(input_ids=batch.input_ids).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)
    assert draft.rows(batch) == (PassRows.of(one),)


def test_tokens_without_a_row_are_read_as_token_0(tmp_path: Path) -> None:
    draft, batch = tiny_draft(tmp_path), make_batch(make_samples(2), ["s000"])
    size = draft.rows(batch)[0].vocab_size
    assert size is not None
    ids = batch.input_ids.clone()
    ids[0, 1] = 0
    expected = draft.forward(replace(batch, input_ids=ids)).passes[0].hidden
    for beyond in (size, size + 7):
        ids[0, 1] = beyond
        found = draft.forward(replace(batch, input_ids=ids.clone())).passes[0].hidden
        assert torch.equal(found, expected)


def test_what_is_saved_our_own_loader_reads(checkpoint: Path, tmp_path: Path) -> None:
    draft = DraftModel.load(checkpoint, device=CPU)
    assert {p.dtype for p in draft.module.parameters()} == {torch.float32}
    with torch.no_grad():
        for parameter in draft.module.parameters():
            parameter.add_(0.25)
    draft.save(tmp_path / "draft")
    assert {p.dtype for p in draft.module.parameters()} == {torch.float32}
    resolved = resolve_model(f"path:{tmp_path / 'draft'}", tmp_path / "cache")
    target = load_target(resolved, dtype="float32", device="cpu")
    ids = [5, 9, 200, 3]
    view = target.view()
    ours = view.prefill([ids], view.new_cache(1, 8))[0]
    rounded = draft.module.to(torch.bfloat16).float()
    expected = rounded(input_ids=torch.tensor([ids])).logits[0, -1]
    torch.testing.assert_close(ours.reshape(-1)[-len(expected) :], expected, rtol=1e-4, atol=1e-4)
    assert json.loads((tmp_path / "draft" / "config.json").read_text())["dtype"] == "bfloat16"
    with safe_open(tmp_path / "draft" / "model.safetensors", framework="pt") as file:
        assert "lm_head.weight" not in set(file.keys())  # it is the embedding
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "draft" / name).read_bytes() == (checkpoint / name).read_bytes()


def test_a_folder_with_something_in_it_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "note").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        DraftModel.load(checkpoint, device=CPU).save(tmp_path)


def test_a_narrowed_vocabulary_picks_rows_of_the_head(checkpoint: Path, tmp_path: Path) -> None:
    source = tmp_path / "narrowed"
    source.mkdir()
    for path in checkpoint.iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    ids = [0, 7, 30, 31]
    (source / "draft_vocab.json").write_text(json.dumps({"target_ids": ids}))
    whole = DraftModel.load(checkpoint, device=CPU)
    draft = DraftModel.load(source, device=CPU)
    batch = make_batch(make_samples(2), ["s001"])
    (one,) = draft.forward(batch).passes
    assert one.head.target_ids is not None
    assert one.head.target_ids.tolist() == ids
    assert torch.equal(one.head.weight, whole.forward(batch).passes[0].head.weight[ids])
    rows = draft.rows(batch)[0].target_ids
    assert rows is not None
    assert rows.tolist() == ids
    draft.save(tmp_path / "draft")
    assert (tmp_path / "draft" / "draft_vocab.json").exists()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        DraftModel.load(tmp_path, device=CPU)


@pytest.mark.parametrize("damage", ["cut short", "pointer", "other sizes"])
def test_weights_that_cannot_be_read_are_refused(
    checkpoint: Path, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "draft"
    shutil.copytree(checkpoint, folder)
    weights = folder / "model.safetensors"
    if damage == "cut short":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "pointer":
        weights.write_text("version 1\noid sha256:00\nsize 10\n")
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps(config | {"intermediate_size": config["intermediate_size"] * 2})
        )
    with pytest.raises(ConfigError, match=r"draft .* cannot be loaded .* all of its weights"):
        DraftModel.load(folder, device=CPU)

"""Drafts cut from tiny targets, against views of the target that skip the same blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specdec_core.config.training import PrunedDraft
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.drafts.vocabulary_file import VOCABULARY_FILE, read_vocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.skip import SkipConfig
from specdec_core.training.pruning import kept_layers, prune_target

PROMPT = [5, 1, 9, 200, 3, 7, 7, 30, 2, 11, 4, 90]  # longer than the window of 8
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def resolved(tmp_path: Path, family: str = "llama", **options: object) -> ResolvedModel:
    folder = write_tiny_checkpoint(tmp_path / "target", family, num_layers=5, **options)
    return resolve_model(f"path:{folder}", tmp_path / "cache")


def logits(model: ResolvedModel, skip: str = "", *, is_draft: bool = False) -> torch.Tensor:
    target = load_target(model, dtype="float64", device="cpu", is_draft=is_draft)
    view = target.view(SkipConfig.parse(skip))
    return view.prefill([PROMPT], view.new_cache(1, len(PROMPT)))[0]


@pytest.mark.parametrize(
    ("num", "expected"),
    [(1, (0,)), (2, (0, 1)), (5, (0, 1, 2, 3, 4)), (30, tuple(range(30)))],
)
def test_the_first_blocks_are_kept_unless_some_are_chosen(
    num: int, expected: tuple[int, ...]
) -> None:
    assert kept_layers(PrunedDraft(num_layers=num), 30) == expected


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (PrunedDraft(layers=(1, 0)), "layers 1/0 cannot be kept of a target with blocks 0 to 4"),
        (PrunedDraft(layers=(1, 1)), "layers 1/1"),
        (PrunedDraft(layers=(1, 5)), "layers 1/5"),
        (PrunedDraft(num_layers=6), "6 blocks cannot be kept of a target with 5"),
    ],
)
def test_blocks_that_are_not_there_are_refused(shape: PrunedDraft, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kept_layers(shape, 5)


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])  # tied embeddings; layer types
def test_a_draft_computes_what_the_target_does_without_the_other_blocks(
    tmp_path: Path, family: str
) -> None:
    model = resolved(tmp_path, family, dtype="float64")
    done = prune_target(model, PrunedDraft(layers=(0, 2, 4)), tmp_path / "draft")
    assert (done.layers, done.num_ids) == ((0, 2, 4), None)
    draft = resolve_model(f"path:{tmp_path / 'draft'}", tmp_path / "cache")
    # Where weights lie in memory may change the order of a sum.
    torch.testing.assert_close(logits(draft), logits(model, "1,3"), rtol=0, atol=1e-12)
    stored = json.loads((tmp_path / "draft" / "specdec_pruned.json").read_text())
    assert stored == json.loads(done.model_dump_json())


def test_a_narrowed_draft_has_the_columns_of_frequent_and_needed_ids(tmp_path: Path) -> None:
    model = resolved(tmp_path, dtype="float64")
    tokenizer_file = model.folder / "tokenizer_config.json"
    config = json.loads(tokenizer_file.read_text())
    tokenizer_file.write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    model = resolve_model(model.reference, tmp_path / "cache")
    vocabulary = json.loads((model.folder / "tokenizer.json").read_text())["model"]["vocab"]
    written = {vocabulary[letter] for letter in "[]systemuerantia"}  # roles and the messages' "a"
    counts = torch.bincount(torch.tensor([150, 151, 150, 152, 150, 151, 240]), minlength=257)
    size = len({0, *written}) + 3
    shape = PrunedDraft(num_layers=2, vocab_size=size)
    assert prune_target(model, shape, tmp_path / "draft", counts=counts).num_ids == size
    ids = read_vocabulary(tmp_path / "draft", 257)
    assert ids is not None
    # 152 and 240 were seen once each: the lower one is kept.
    assert ids.target_ids.tolist() == sorted({0, *written, 150, 151, 152})
    draft = resolve_model(f"path:{tmp_path / 'draft'}", tmp_path / "cache")
    whole = logits(draft)
    narrowed = logits(draft, is_draft=True)
    torch.testing.assert_close(narrowed, whole[ids.target_ids], rtol=0, atol=1e-12)
    assert whole.shape == (257,)
    (tmp_path / "draft" / VOCABULARY_FILE).unlink()
    again = resolve_model(f"path:{tmp_path / 'draft'}", tmp_path / "cache")
    assert again.identity != draft.identity


def test_what_cannot_be_cut_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model, out = resolved(tmp_path), tmp_path / "draft"
    narrowed = PrunedDraft(num_layers=2, vocab_size=16)
    with pytest.raises(ConfigError, match="but none were counted: make the data first"):
        prune_target(model, narrowed, out)
    wide, counts = PrunedDraft(num_layers=2, vocab_size=300), torch.zeros(257)
    with pytest.raises(ConfigError, match="300 ids cannot be taken from 257"):
        prune_target(model, wide, out, counts=counts)
    assert not out.exists()
    out.mkdir()
    with pytest.raises(ConfigError, match="exists: give a folder that does not"):
        prune_target(model, PrunedDraft(num_layers=2), out)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no map of a narrowed vocabulary"),
        ('{"target_ids": [3, 2]}', "is no map of a narrowed vocabulary"),
        ('{"target_ids": [3, 9]}', "has target id 9, but the target has ids 0 to 8"),
    ],
)
def test_a_damaged_map_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / VOCABULARY_FILE).write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_vocabulary(tmp_path, 9)


def test_no_map_is_the_whole_vocabulary(tmp_path: Path) -> None:
    assert read_vocabulary(tmp_path, 9) is None
    assert len(DraftVocabulary([0, 4])) == 2

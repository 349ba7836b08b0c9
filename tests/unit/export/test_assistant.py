"""Draft models as assistant models of `transformers`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specdec_core.config.training import PrunedDraft
from specdec_core.drafts.provenance_file import read_provenance
from specdec_core.drafts.specs import Provenance
from specdec_core.errors import ConfigError, ExportError
from specdec_core.export.assistant import export_assistant, verify_assistant
from specdec_core.export.card import CardFigure
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.pruning import prune_target

ORIGIN = Provenance(template_hash="7e" * 32, data_hash="da" * 32, domains=("chat",))


def made(tmp_path: Path, family: str = "llama") -> tuple[ResolvedModel, ResolvedModel]:
    """Return a target and a narrowed draft cut from it."""
    folder = write_tiny_checkpoint(tmp_path / "target", family, num_layers=4)
    target = resolve_model(f"path:{folder}", tmp_path / "cache")
    shape = PrunedDraft(layers=(0, 1, 3), vocab_size=64)
    prune_target(target, shape, tmp_path / "draft", counts=torch.ones(257))
    return target, resolve_model(f"path:{tmp_path / 'draft'}", tmp_path / "cache")


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_library_generates_the_targets_own_tokens_with_it(tmp_path: Path, family: str) -> None:
    target, draft = made(tmp_path, family)
    export_assistant(draft, target, tmp_path / "out", num_assistant_tokens=3)
    whole, assistant = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for folder in (target.folder, tmp_path / "out")
    )
    assert assistant.generation_config.num_assistant_tokens == 3
    prompt = {"input_ids": torch.tensor([[5, 90, 17, 200, 3, 44]])}
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    plain = whole.generate(**prompt, **options)
    calls = []
    assistant.register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(whole.generate(**prompt, **options, assistant_model=assistant), plain)
    assert calls


def test_manifest_card_and_origin_go_along(tmp_path: Path) -> None:
    target, draft = made(tmp_path)
    figure = CardFigure("tokens per second", "", "66.0", "x1.100 [1.050, 1.150]")
    done = export_assistant(
        draft, target, tmp_path / "out", provenance=ORIGIN, figures=[figure], notes=["Small."]
    )
    assert verify_assistant(tmp_path / "out") == done
    assert done.provenance == read_provenance(tmp_path / "out") == ORIGIN
    assert (done.source_identity, done.target_identity) == (draft.identity, target.identity)
    assert {"model.safetensors", "tokenizer.json", "draft_vocab.json"} <= done.files.keys()
    card = (tmp_path / "out" / "README.md").read_text()
    for text in (
        f"# Draft model for {target.reference}",
        "`draft_vocab.json` lists the ids",
        "chat template 7e7e7e7e7e7e",
        "| tokens per second |  | 66.0 | x1.100 [1.050, 1.150] |",
        "Small.",
    ):
        assert text in card


def test_damage_is_noticed(tmp_path: Path) -> None:
    target, draft = made(tmp_path)
    out = tmp_path / "out"
    export_assistant(draft, target, out)
    (out / "model.safetensors").rename(tmp_path / "kept")
    with pytest.raises(ExportError, match=r"lacks model\.safetensors"):
        verify_assistant(out)
    (tmp_path / "kept").rename(out / "model.safetensors")
    verify_assistant(out)
    (out / "draft_vocab.json").write_text('{"target_ids": [0]}')
    with pytest.raises(
        ExportError, match=r"draft_vocab.json has hash \w{12}\.\., but its manifest"
    ):
        verify_assistant(out)
    (out / "specdec_export.json").unlink()
    with pytest.raises(ExportError, match=r"has no readable specdec_export\.json"):
        verify_assistant(out)


def test_another_tokenizer_and_a_folder_that_exists_are_refused(tmp_path: Path) -> None:
    target, draft = made(tmp_path)
    with pytest.raises(ConfigError, match="exists: give a folder that does not"):
        export_assistant(draft, target, tmp_path / "draft")
    shutil.copytree(draft.folder, tmp_path / "swapped")
    file = tmp_path / "swapped" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["k"], vocabulary["q"] = vocabulary["q"], vocabulary["k"]
    file.write_text(json.dumps(content))
    swapped = resolve_model(f"path:{tmp_path / 'swapped'}", tmp_path / "cache")
    with pytest.raises(ConfigError, match="has another tokenizer"):
        export_assistant(swapped, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()

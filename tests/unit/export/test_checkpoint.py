"""Exported checkpoints against the library's own model with its layers taken out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdec_core.errors import ConfigError, ExportError
from specdec_core.export.card import CardFigure
from specdec_core.export.check import check_export
from specdec_core.export.checkpoint import export_checkpoint
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import FAMILIES, write_tiny_checkpoint
from specdec_core.skip import SkipConfig

PROMPT = [[5, 1, 9, 200, 3, 7, 7, 30, 2, 11, 4, 90]]  # longer than the window of 8


def exported(tmp_path: Path, family: str, skip: str, **options: object) -> Path:
    source = write_tiny_checkpoint(tmp_path / "source", family, num_layers=5, **options)
    model = resolve_model(f"path:{source}", tmp_path / "cache")
    export_checkpoint(model, SkipConfig.parse(skip), tmp_path / "out")
    return tmp_path / "out"


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.tensor(PROMPT), use_cache=False).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_are_gone_and_the_library_computes_the_same(tmp_path: Path, family: str) -> None:
    """The reference: the whole library model, blocks taken out of its list, in float64."""
    out = exported(tmp_path, family, "0,3", dtype="float64")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "source", dtype=torch.float64)
    whole.model.layers = torch.nn.ModuleList(whole.model.layers[i] for i in (1, 2, 4))
    if types := getattr(whole.config, "layer_types", None):
        whole.config.layer_types = [types[i] for i in (1, 2, 4)]
    whole.config.num_hidden_layers = 3
    alone = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64)
    assert len(alone.model.layers) == alone.config.num_hidden_layers == 3
    torch.testing.assert_close(logits_of(alone), logits_of(whole), rtol=0, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_skipped_halves_add_nothing_in_the_library(tmp_path: Path, family: str) -> None:
    """The reference: the whole library model with hooks that write zeros, biases included."""
    out = exported(tmp_path, family, "a1,m2", dtype="float64")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "source", dtype=torch.float64)
    silent = (whole.model.layers[1].self_attn.o_proj, whole.model.layers[2].mlp.down_proj)
    for module in silent:
        module.register_forward_hook(lambda _module, _inputs, output: torch.zeros_like(output))
    alone = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64)
    assert torch.equal(logits_of(alone), logits_of(whole))


def test_layer_types_move_with_their_layers(tmp_path: Path) -> None:
    out = exported(tmp_path, "gemma3", "1,2,m0")  # types: s f s s f
    config = json.loads((out / "config.json").read_text())
    sliding, full = "sliding_attention", "full_attention"
    assert config["layer_types"] == [sliding, sliding, full]
    assert config["num_hidden_layers"] == 3
    assert config["architectures"] == ["Gemma3ForCausalLM"]


def test_card_and_manifest_say_what_was_done(tmp_path: Path) -> None:
    source = write_tiny_checkpoint(tmp_path / "source", "llama", num_layers=5)
    model = resolve_model(f"path:{source}", tmp_path / "cache")
    figure = CardFigure("tokens per second", "60.0", "66.0", "x1.100 [1.050, 1.150]")
    done = export_checkpoint(
        model,
        SkipConfig.parse("3,a1"),
        tmp_path / "out",
        figures=[figure],
        notes=["Domain qa only."],
    )
    assert (done.removed_blocks, done.zeroed_halves, done.num_layers) == ((3,), ("a1",), 4)
    manifest = json.loads((tmp_path / "out" / "specdec_export.json").read_text())
    assert manifest == done.model_dump(mode="json")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- Removed blocks of the original (0-based): 3; 4 are left" in card
    assert "- Skipped halves (a attention, m MLP): a1. Plain `transformers` cannot" in card
    assert "| tokens per second | 60.0 | 66.0 | x1.100 [1.050, 1.150] |" in card
    assert "Domain qa only." in card
    assert "The terms of the original model apply to these files as well." in card


def test_what_cannot_be_exported_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = write_tiny_checkpoint(tmp_path / "source", "llama")
    model = resolve_model(f"path:{source}", tmp_path / "cache")
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="the skip set is empty"):
        export_checkpoint(model, SkipConfig(), out)
    with pytest.raises(ConfigError, match="names layer 9"):
        export_checkpoint(model, SkipConfig.parse("9"), out)
    assert not out.exists()
    out.mkdir()
    with pytest.raises(ConfigError, match="exists: give a folder that does not"):
        export_checkpoint(model, SkipConfig.parse("1"), out)


def test_an_export_that_computes_something_else_is_noticed(tmp_path: Path) -> None:
    out = exported(tmp_path, "qwen3", "1")
    weights = load_file(out / "model.safetensors")
    weights["model.layers.0.mlp.down_proj.weight"] *= 1.01
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    model = resolve_model(f"path:{tmp_path / 'source'}", tmp_path / "cache")
    with pytest.raises(ExportError, match="does not compute what the sparse view does"):
        check_export(model, SkipConfig.parse("1"), out)

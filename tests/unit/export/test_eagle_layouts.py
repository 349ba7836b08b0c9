"""EAGLE heads in served layouts against an independent reader, and damage that is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdec_core.config.learned_drafters import Eagle
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.drafts.loading import DraftShelf
from specdec_core.errors import ConfigError, ExportError
from specdec_core.export.eagle_layouts import export_eagle, verify_eagle
from specdec_core.export.eagle_names import LAYOUTS, Layout, served_config
from specdec_core.export.facts import DraftFacts, SharedPart
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.target import Target
from specdec_core.models.tiny import write_tiny_checkpoint
from tests.learned_drafts import spec_for, write_draft
from tests.unit.export.recorded import Recorded
from tests.unit.export.served_eagle import ServedEagle

PLACES = {
    ("eagle", "speculators"): ("transformer", "fusion_fc"),
    ("eagle", "sglang"): ("layers.0", "fc"),
    ("eagle3", "speculators"): ("layers.0", "fc"),
    ("eagle3", "sglang"): ("midlayer", "fc"),
}
PROMPT = [5, 90, 17, 200, 3, 44, 61]


def made(tmp_path: Path, kind: str, family: str = "llama") -> tuple[ResolvedModel, Target]:
    """Write a target and an untrained head of it."""
    folder = write_tiny_checkpoint(tmp_path / "target", family, num_layers=6, dtype="float64")
    model = resolve_model(f"path:{folder}", tmp_path / "cache")
    target = load_target(model, dtype="float64", device="cpu")
    write_draft(tmp_path / "head", kind, target)
    return model, target


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["eagle", "eagle3", "eagle3-narrow"])
def test_an_independent_reader_proposes_the_same_tokens(
    tmp_path: Path, kind: str, layout: Layout
) -> None:
    model, target = made(tmp_path, kind)
    export_eagle(tmp_path / "head", model, layout, tmp_path / "out")
    options = Eagle(model=str(tmp_path / "head"), shape="chain", gamma=4)
    view = target.view()
    context = DrafterContext(target, view=view, load_draft=DraftShelf(target).load)
    drafter = Recorded(make_drafter(options, context))
    generate(view, [PROMPT], [drafter], max_new_tokens=20, eos_ids=())
    library = AutoModelForCausalLM.from_pretrained(model.folder, dtype=torch.float64).eval()
    reader = ServedEagle(tmp_path / "out", library, *PLACES[kind.removesuffix("-narrow"), layout])
    taps = spec_for(kind, target.arch).taps
    # Near the limit of the output chains are shorter.
    assert sum(len(tokens) == 4 for _, tokens in drafter.proposals) >= 4
    for sequence, tokens in drafter.proposals:
        assert reader.chain(sequence, taps, len(tokens)) == tokens


def test_version_3_says_which_states_it_reads_as_each_engine_counts_them(tmp_path: Path) -> None:
    model, _ = made(tmp_path, "eagle3-narrow")
    for layout in LAYOUTS:
        export_eagle(tmp_path / "head", model, layout, tmp_path / layout)
    first, second = (json.loads((tmp_path / each / "config.json").read_text()) for each in LAYOUTS)
    # Streams that enter blocks 2, 3 and 4, which are outputs of blocks 1, 2 and 3.
    assert first["eagle_aux_hidden_state_layer_ids"] == [2, 3, 4]
    assert second["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert first["speculators_model_type"] == "eagle3"
    assert first["norm_before_residual"] is False
    assert second["architectures"] == ["LlamaForCausalLMEagle3"]
    assert first["draft_vocab_size"] == second["draft_vocab_size"] == 256
    tensors = load_file(tmp_path / "sglang" / "model.safetensors")
    # All ids but the second: the draft's id 1 is the target's 2.
    assert tensors["d2t"].tolist() == [0] + [1] * 255
    assert tensors["t2d"].tolist() == [True, False, *[True] * 255]


def test_card_and_manifest_say_what_it_is(tmp_path: Path) -> None:
    model, _ = made(tmp_path, "eagle")
    done = export_eagle(tmp_path / "head", model, "sglang", tmp_path / "out", notes=["Slow."])
    assert verify_eagle(tmp_path / "out") == done
    assert (done.version, done.layout, done.taps) == (1, "sglang", (-1,))
    assert "layers.0.self_attn.q_proj.weight" in done.tensors
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"# EAGLE-1 head for {model.reference}" in card
    assert "It was not run by a server of that project." in card
    assert "Slow." in card


@pytest.mark.parametrize(
    ("kind", "num_drafted_ids", "shared"),
    [
        ("eagle", 257, ("embedding", "head")),
        ("eagle3", 257, ("embedding",)),
        # Its vocabulary lacks one id.
        ("eagle3-narrow", 256, ("embedding",)),
    ],
)
def test_the_manifest_says_what_is_the_targets_and_which_training_it_is_of(
    tmp_path: Path, kind: str, num_drafted_ids: int, shared: tuple[SharedPart, ...]
) -> None:
    model, _ = made(tmp_path, kind)
    out = tmp_path / "out"
    export_eagle(tmp_path / "head", model, "speculators", out, run_id="r1", training_key="k1")
    done = verify_eagle(out)
    assert done.facts == DraftFacts(
        vocab_size=257,
        num_drafted_ids=num_drafted_ids,
        shared=shared,
        run_id="r1",
        training_key="k1",
    )
    # What is the target's has no tensor here.
    own_head = [name for name in done.tensors if "lm_head" in name]
    assert bool(own_head) == ("head" not in shared)
    assert not [name for name in done.tensors if "embed" in name]
    path = out / "specdec_export.json"
    document = json.loads(path.read_text())
    del document["facts"]  # as older versions wrote it
    path.write_text(json.dumps(document))
    assert verify_eagle(out).facts is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("change", r"tensor 'midlayer.mlp.up_proj.weight' in .* is not the one its manifest names"),
        ("drop", "lacks tensor 'midlayer.mlp.up_proj.weight'"),
        ("add", "has a foreign tensor 'more'"),
        ("cut", "model.safetensors cannot be read"),
        ("config", r"config.json has hash \w{12}\.\., but its manifest says"),
        ("no config", "lacks config.json"),
        ("no manifest", "has no readable specdec_export.json"),
    ],
)
def test_damaged_and_missing_parts_are_named(tmp_path: Path, damage: str, message: str) -> None:
    model, _ = made(tmp_path, "eagle3")
    out = tmp_path / "out"
    export_eagle(tmp_path / "head", model, "sglang", out)
    weights, name = out / "model.safetensors", "midlayer.mlp.up_proj.weight"
    tensors = load_file(weights)
    if damage == "change":
        tensors[name][0, 0] += 1e-9
    elif damage == "drop":
        del tensors[name]
    elif damage == "add":
        tensors["more"] = torch.zeros(1)
    if damage in ("change", "drop", "add"):
        save_file(tensors, weights)
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-9])
    elif damage == "config":
        (out / "config.json").write_text("{}")
    else:
        (out / ("config.json" if damage == "no config" else "specdec_export.json")).unlink()
    with pytest.raises(ExportError, match=message):
        verify_eagle(out)


def test_what_engines_cannot_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model, target = made(tmp_path, "eagle", "qwen3")
    with pytest.raises(ConfigError, match="the head has norms on queries and keys: served layouts"):
        export_eagle(tmp_path / "head", model, "sglang", tmp_path / "out")
    write_draft(tmp_path / "medusa", "medusa", target)
    with pytest.raises(ConfigError, match="holds a drafter of kind 'medusa'"):
        export_eagle(tmp_path / "medusa", model, "sglang", tmp_path / "out")
    third = spec_for("eagle3", target.arch).model_copy(update={"taps": (0, 1, 2)})
    with pytest.raises(ConfigError, match="which the embedding, 0, is not"):
        served_config(third, "sglang", None, model.reference, 1.0)
    with pytest.raises(ConfigError, match="scaled embeddings"):
        served_config(third, "sglang", None, model.reference, 4.0)
    assert not (tmp_path / "out").exists()
    other = write_tiny_checkpoint(tmp_path / "other", "qwen3", seed=1, num_layers=6)
    with pytest.raises(ConfigError, match="the drafter was trained for"):
        export_eagle(
            tmp_path / "head",
            resolve_model(f"path:{other}", tmp_path / "cache"),
            "sglang",
            tmp_path / "out",
        )

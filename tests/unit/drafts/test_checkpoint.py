"""Checkpoints of learned drafters: what is stored, and every way they can be wrong."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.decoding import DRAFTERS, DrafterContext, make_drafter
from specdec_core.drafts.checkpoint import load_draft, save_draft
from specdec_core.drafts.loading import DraftShelf
from specdec_core.drafts.manifest import read_draft_manifest, verify_draft
from specdec_core.drafts.specs import Provenance, default_taps
from specdec_core.errors import ConfigError
from specdec_core.models.files import file_sha256
from specdec_core.models.tiny import tiny_target
from tests.learned_drafts import KINDS, make_draft, write_draft

CPU = torch.device("cpu")
SIZES = {"vocab_size": 9, "num_layers": 4}


@pytest.fixture(scope="module")
def target():
    return tiny_target("qwen3", seed=1, **SIZES)


def rewrite(folder, change):
    """Change the weight file, and the hash in the manifest with it."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    document = json.loads((folder / "config.json").read_text())
    document["weights_hash"] = file_sha256(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(document))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_comes_back_and_nothing_of_the_target_is_stored(kind, target, tmp_path):
    written = write_draft(tmp_path / "draft", kind, target)
    assert sorted(path.name for path in (tmp_path / "draft").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    read = load_draft(tmp_path / "draft", dtype=torch.float64, device=CPU)
    assert read.spec == written.spec
    assert read.target == written.target
    own = written.module.state_dict()
    assert own.keys() == read.module.state_dict().keys()
    for name, tensor in read.module.state_dict().items():
        assert torch.equal(tensor, own[name])
        assert not tensor.requires_grad
    stored = set(load_file(tmp_path / "draft" / "model.safetensors"))
    assert not any("embed_tokens" in name for name in stored)
    assert ("target_ids" in stored) == kind.endswith("-narrow")
    # Version 1 reads the target's own head.
    assert any(name.startswith("lm_head") for name in stored) == (kind != "eagle")
    if kind.endswith("-narrow"):
        assert read.vocabulary.target_ids.tolist() == [0, 2, 3, 4, 5, 6, 7, 8]


def test_weights_are_converted_to_the_targets_type(target, tmp_path):
    write_draft(tmp_path, "eagle3-narrow", target)
    read = load_draft(tmp_path, dtype=torch.bfloat16, device=CPU)
    assert {tensor.dtype for tensor in read.module.state_dict().values()} == {torch.bfloat16}


def test_the_identity_names_weights_structure_and_target_but_not_where_they_come_from(
    target, tmp_path
):
    draft = make_draft("eagle", target, is_packed=False)
    other = make_draft("eagle", target, seed=7, is_packed=False)
    elsewhere = draft.target.model_copy(update={"identity": "another"})
    noted = Provenance(data_hash="d", template_hash="t", training={"loss": "kl", "seeds": [1, 2]})
    cases = {
        "plain": (draft, draft.target, None),
        "noted": (draft, draft.target, noted),
        "other": (other, draft.target, None),
        "elsewhere": (draft, elsewhere, None),
    }
    found = {}
    for name, (one, facts, provenance) in cases.items():
        save_draft(tmp_path / name, one.spec, one.module, target=facts, provenance=provenance)
        found[name] = read_draft_manifest(tmp_path / name)
    assert found["noted"].provenance == noted
    assert found["plain"].identity == found["noted"].identity
    assert len({manifest.identity for manifest in found.values()}) == 3


def test_a_folder_that_is_in_use_is_left_alone(target, tmp_path):
    draft = write_draft(tmp_path, "eagle", target)
    with pytest.raises(ConfigError, match="holds a drafter already"):
        save_draft(tmp_path, draft.spec, draft.module, target=draft.target)


def test_a_head_and_its_vocabulary_belong_together(target, tmp_path):
    draft = make_draft("eagle3-narrow", target, is_packed=False)
    with pytest.raises(ConfigError, match="has 8 narrowed ids, but its vocabulary None"):
        save_draft(tmp_path / "new", draft.spec, draft.module, target=draft.target)


def load(folder):
    return load_draft(folder, dtype=torch.float64, device=CPU)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_foreign_and_misshapen_tensors_are_named(kind, target, tmp_path):
    write_draft(tmp_path / "a", kind, target)
    names = sorted(set(load_file(tmp_path / "a" / "model.safetensors")) - {"target_ids"})
    rewrite(tmp_path / "a", lambda tensors: tensors.pop(names[0]))
    with pytest.raises(ConfigError, match=rf"lacks 1 tensors \({names[0]}, ..\)"):
        load(tmp_path / "a")
    write_draft(tmp_path / "b", kind, target)
    rewrite(tmp_path / "b", lambda tensors: tensors.update(extra=torch.zeros(1)))
    with pytest.raises(ConfigError, match=r"holds 1 tensors .*\(extra, ..\)"):
        load(tmp_path / "b")
    write_draft(tmp_path / "c", kind, target)
    rewrite(tmp_path / "c", lambda tensors: tensors.update({names[0]: torch.zeros(2, 3)}))
    with pytest.raises(ConfigError, match=rf"'{names[0]}' in .* has shape \(2, 3\), but"):
        load(tmp_path / "c")


def test_a_narrowed_head_without_its_map_is_refused(target, tmp_path):
    write_draft(tmp_path, "medusa-narrow", target)
    rewrite(tmp_path, lambda tensors: tensors.pop("target_ids"))
    with pytest.raises(ConfigError, match="a head of 8 ids without a map of as many"):
        load(tmp_path)


def test_damage_is_noticed_where_everything_still_has_its_shape(target, tmp_path):
    write_draft(tmp_path, "eagle", target)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for read in (load, verify_draft):
        with pytest.raises(ConfigError, match=r"has hash .* but config.json says"):
            read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs", b"\xff" * 100])
def test_a_weight_file_that_is_none_is_refused(content, target, tmp_path):
    write_draft(tmp_path, "eagle", target)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match="damaged or only a pointer"):
        load(tmp_path)


def test_missing_files_are_named(target, tmp_path):
    with pytest.raises(ConfigError, match=r"no learned drafter in .*No such file"):
        load(tmp_path / "nowhere")
    write_draft(tmp_path, "eagle", target)
    (tmp_path / "model.safetensors").unlink()
    for read in (load, verify_draft):
        with pytest.raises(ConfigError, match=r"lacks model.safetensors"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.pop("weights_hash"), "weights_hash: Field required"),
        (lambda document: document.update(format_version=2), "format_version: Input should be 1"),
        (lambda document: document["draft"].update(kind="hydra"), "hydra"),
        (lambda document: document.update(model_type="llama"), "Extra inputs"),
    ],
)
def test_a_config_of_something_else_is_refused(change, message, target, tmp_path):
    write_draft(tmp_path, "eagle", target)
    document = json.loads((tmp_path / "config.json").read_text())
    change(document)
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=message):
        load(tmp_path)


def test_another_target_is_refused_unless_asked_for_and_of_the_same_sizes(target, tmp_path):
    write_draft(tmp_path, "eagle", target)
    folder = str(tmp_path)
    shelf = DraftShelf(target)
    assert shelf.load(folder, False) is shelf.load(folder, False)
    other = tiny_target("qwen3", seed=2, **SIZES)
    with pytest.raises(ConfigError, match=r"trained for .* but the target .*other_target=true"):
        DraftShelf(other).load(folder, False)
    assert DraftShelf(other).load(folder, True) is not shelf.load(folder, False)
    larger = tiny_target("qwen3", seed=2, vocab_size=10, num_layers=4)
    with pytest.raises(ConfigError, match=r"hidden size 16 and 9 ids, but the target .* 16 and 10"):
        DraftShelf(larger).load(folder, True)


def test_options_reach_a_drafter_and_say_what_they_need_before_anything_is_loaded(target, tmp_path):
    write_draft(tmp_path, "eagle3", target)
    config = Eagle(model=str(tmp_path), num_nodes=9)
    assert DRAFTERS.needs(config).taps == (1, 2, 3)
    assert DRAFTERS.needs(config).max_nodes == 9
    context = DrafterContext(target, view=target.view(), load_draft=DraftShelf(target).load)
    assert make_drafter(config, context).needs == DRAFTERS.needs(config)
    with pytest.raises(ConfigError, match="of kind 'eagle': use that method"):
        make_drafter(Medusa(model=str(tmp_path)), context)
    with pytest.raises(ConfigError, match=r"'eagle' drafts with what training left .* nothing"):
        make_drafter(config)


def test_taps_are_low_middle_and_high_in_targets_of_every_depth():
    assert default_taps(30) == (2, 15, 27)
    assert default_taps(32) == (2, 16, 29)
    assert default_taps(6) == (2, 3, 4)
    assert default_taps(4) == (1, 2, 3)
    assert default_taps(3) == (0, 1, 2)
    assert default_taps(2) == (0, 1, 2)
    assert default_taps(1) == (0, 0, 1)

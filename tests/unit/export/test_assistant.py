"""Draft models as assistant models of `transformers`."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.generation.candidate_generator import AssistedCandidateGenerator

from specdec_core.config.model_drafters import DraftModel
from specdec_core.config.training import PrunedDraft
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.drafts.provenance_file import read_provenance
from specdec_core.drafts.specs import Provenance
from specdec_core.errors import ConfigError, ExportError
from specdec_core.export.assistant import export_assistant, verify_assistant
from specdec_core.export.card import CardFigure
from specdec_core.export.facts import DraftFacts
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.pruning import prune_target
from tests.unit.export.recorded import Recorded

PROMPT = [5, 90, 17, 200, 3, 44, 61]
ORIGIN = Provenance(template_hash="7e" * 32, data_hash="da" * 32, domains=("chat",))


def made(
    tmp_path: Path, family: str = "llama", *, vocab_size: int | None = 64, **options: object
) -> tuple[ResolvedModel, ResolvedModel]:
    """Return a target and a draft cut from it, narrowed unless told otherwise."""
    folder = write_tiny_checkpoint(tmp_path / "target", family, num_layers=4, **options)
    target = resolve_model(f"path:{folder}", tmp_path / "cache")
    shape = PrunedDraft(layers=(0, 1, 3), vocab_size=vocab_size)
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


def test_the_library_proposes_with_it_what_our_drafter_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = made(tmp_path, vocab_size=None, dtype="float64")
    export_assistant(draft, target, tmp_path / "out", num_assistant_tokens=3)
    ours, view = (load_target(model, dtype="float64", device="cpu") for model in (draft, target))
    context = DrafterContext(load_model=lambda _: ours, view=view.view())
    drafter = Recorded(make_drafter(DraftModel(model="x", gamma=3), context))
    generate(view.view(), [PROMPT], [drafter], max_new_tokens=40, eos_ids=())
    # Steps begin behind the prefill's token, with which the library is asked to begin.
    begin = drafter.proposals[0][0]
    assert begin[:-1] == PROMPT

    theirs: list[tuple[list[int], list[int]]] = []
    get_candidates = AssistedCandidateGenerator.get_candidates

    def recorded(self: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        found = get_candidates(self, input_ids, **options)
        prefix = input_ids[0].tolist()
        theirs.append((prefix, found[0][0, len(prefix) :].tolist()))
        return found

    monkeypatch.setattr(AssistedCandidateGenerator, "get_candidates", recorded)
    whole, assistant = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        for folder in (target.folder, tmp_path / "out")
    )
    for model in (whole, assistant):
        model.generation_config.eos_token_id = None
    prompt = {"input_ids": torch.tensor([begin])}
    options = {"max_new_tokens": 39, "do_sample": False, "pad_token_id": 0}
    whole.generate(**prompt, **options, assistant_model=assistant)
    # Near the limit of the output chains are shorter.
    chains = [each for each in drafter.proposals if len(each[1]) == 3]
    assert [each for each in theirs if len(each[1]) == 3] == chains
    assert len(chains) >= 5
    # Some steps keep tokens of the draft, others do not: chains begin after both.
    begins = [len(prefix) for prefix, _ in chains]
    strides = {after - before for before, after in pairwise(begins)}
    assert len(strides) > 1


def test_manifest_card_and_origin_go_along(tmp_path: Path) -> None:
    target, draft = made(tmp_path)
    figure = CardFigure("tokens per second", "", "66.0", "x1.100 [1.050, 1.150]")
    done = export_assistant(
        draft,
        target,
        tmp_path / "out",
        provenance=ORIGIN,
        figures=[figure],
        notes=["Small."],
        run_id="r1",
        training_key="k1",
    )
    assert verify_assistant(tmp_path / "out") == done
    assert done.provenance == read_provenance(tmp_path / "out") == ORIGIN
    assert (done.source_identity, done.target_identity) == (draft.identity, target.identity)
    assert {"model.safetensors", "tokenizer.json", "draft_vocab.json"} <= done.files.keys()
    # A whole model that proposes 64 of 257 ids.
    assert done.facts == DraftFacts(
        vocab_size=257, num_drafted_ids=64, shared=(), run_id="r1", training_key="k1"
    )
    embedding = done.tensors["model.embed_tokens.weight"]
    assert embedding.shape[0] == 257
    assert len([name for name in done.tensors if name.endswith("mlp.up_proj.weight")]) == 3
    card = (tmp_path / "out" / "README.md").read_text()
    for text in (
        f"# Draft model for {target.reference}",
        "`draft_vocab.json` lists the ids",
        "chat template 7e7e7e7e7e7e",
        "| tokens per second |  | 66.0 | x1.100 [1.050, 1.150] |",
        "Small.",
    ):
        assert text in card


def flip_last_byte(path: Path) -> None:
    """Change the last byte of the weights; twice is not at all."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_damage_is_noticed(tmp_path: Path) -> None:
    target, draft = made(tmp_path)
    out = tmp_path / "out"
    export_assistant(draft, target, out)
    (out / "model.safetensors").rename(tmp_path / "kept")
    with pytest.raises(ExportError, match=r"lacks model\.safetensors"):
        verify_assistant(out)
    (tmp_path / "kept").rename(out / "model.safetensors")
    verify_assistant(out)
    flip_last_byte(out / "model.safetensors")
    with pytest.raises(
        ExportError,
        match=r"model\.safetensors has hash \w{12}\.\., but its manifest says \w{12}\.\.: it was "
        "damaged or changed, fetch the export anew",
    ):
        verify_assistant(out)
    flip_last_byte(out / "model.safetensors")
    verify_assistant(out)
    # A mask of another width, as somebody may try it.
    config = (out / "config.json").read_text()
    (out / "config.json").write_text(json.dumps({**json.loads(config), "sliding_window": 1}))
    with pytest.raises(ExportError, match=r"config\.json has hash .* it was damaged or changed"):
        verify_assistant(out)
    (out / "config.json").write_text(config)
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


def test_a_head_with_other_rows_is_refused_which_the_library_takes_for_another_tokenizer(
    tmp_path: Path,
) -> None:
    target, draft = made(tmp_path, vocab_size=None)
    model = AutoModelForCausalLM.from_pretrained(draft.folder)
    model.resize_token_embeddings(320)  # padded, as some checkpoints are
    shutil.copytree(draft.folder, tmp_path / "padded")
    model.save_pretrained(tmp_path / "padded")
    padded = resolve_model(f"path:{tmp_path / 'padded'}", tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"has 320 rows in its head and path:.*target 257"):
        export_assistant(padded, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    whole = AutoModelForCausalLM.from_pretrained(target.folder)
    prompt = {"input_ids": torch.tensor([PROMPT]), "pad_token_id": 0, "max_new_tokens": 8}
    with pytest.raises(ValueError, match="tokenizer"):
        whole.generate(**prompt, assistant_model=model)

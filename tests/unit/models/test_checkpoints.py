"""Checkpoints as they lie in folders: shards, nested names, old configurations, stray files."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec_core.errors import ConfigError, UnsupportedModelError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
TOKENS = [5, 1, 7, 30, 2, 2, 9, 14, 3, 8, 21, 6]


@pytest.fixture
def folder(tmp_path):
    return write_tiny_checkpoint(tmp_path / "model", seed=1)


def load(folder):
    resolved = resolve_model(f"path:{folder}", folder.parent / "cache")
    return load_target(resolved, dtype="float64", device="cpu")


def logits(folder):
    view = load(folder).view()
    return view.prefill([TOKENS], view.new_cache(1, 20))[0]


def library_logits(folder):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    )
    with torch.no_grad():
        return model(input_ids=torch.tensor([TOKENS]), use_cache=False).logits[0, -1]


def change_config(folder, **changes):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def split_weights(folder):
    """Write the weights anew as two shards with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    owner = {}
    for number in (1, 2):
        name = f"model-{number:05d}-of-00002.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number - 1 :: 2]}
        save_file(part, folder / name, {"format": "pt"})
        owner.update(dict.fromkeys(part, name))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": owner})
    )


def test_shards_are_one_checkpoint(folder):
    expected = logits(folder)
    split_weights(folder)
    assert torch.equal(logits(folder), expected)
    torch.testing.assert_close(expected, library_logits(folder), **TOLERANCE)


@pytest.mark.parametrize("is_split", [False, True])
def test_weights_kept_a_second_time_in_another_format_are_left_alone(folder, is_split):
    if is_split:
        split_weights(folder)
    expected, identity = logits(folder), load(folder).identity
    save_file({"layers.0.attention.wq.weight": torch.ones(2)}, folder / "consolidated.safetensors")
    assert torch.equal(logits(folder), expected)
    assert load(folder).identity == identity


def test_a_missing_shard_is_named(folder):
    split_weights(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"lacks 1 of 2 shards \(model-00002-of-00002"):
        load(folder)


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_a_damaged_index_is_named(folder, text):
    split_weights(folder)
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ConfigError, match="is not an index of shards"):
        load(folder)


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"has no \.safetensors file: convert"):
        load(folder)


def test_weights_that_are_only_a_pointer_are_named(folder):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"
    (folder / "model.safetensors").write_text(pointer)
    with pytest.raises(ConfigError, match=r"model\.safetensors is damaged or only a pointer"):
        load(folder)


def test_a_folder_without_tokenizer_is_refused(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ConfigError, match="tokenizer cannot be loaded"):
        load(folder)


def test_old_configurations_with_rope_scaling_are_understood(folder):
    plain = logits(folder)
    change_config(
        folder,
        rope_parameters=None,
        rope_theta=500.0,
        rope_scaling={"type": "linear", "factor": 2.0},
    )
    torch.testing.assert_close(logits(folder), library_logits(folder), **TOLERANCE)
    assert not torch.allclose(logits(folder), plain, rtol=1e-2)


def test_a_stored_head_counts_where_the_configuration_calls_it_tied(folder):
    expected = logits(folder)
    change_config(folder, tie_word_embeddings=True)
    assert torch.equal(logits(folder), expected)
    torch.testing.assert_close(expected, library_logits(folder), **TOLERANCE)


def test_a_missing_head_is_refused_where_the_configuration_calls_it_its_own(tmp_path):
    folder = write_tiny_checkpoint(tmp_path / "model", "qwen2")
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    change_config(folder, tie_word_embeddings=False)
    with pytest.raises(ConfigError, match=r"lacks tensor 'lm_head\.weight'"):
        load(folder)


@pytest.mark.parametrize(
    "renamed",
    [
        {},
        {"model.language_model.": "language_model.model.", "model.vision_tower.": "vision_tower."},
    ],
)
def test_the_text_decoder_of_a_multimodal_checkpoint_is_found(tmp_path, renamed):
    """Names of today's files, and those of the files first published."""
    folder = write_multimodal_checkpoint(tmp_path / "model")
    expected = library_logits(folder)
    tensors = load_file(folder / "model.safetensors")
    assert any("vision" in name for name in tensors)
    for new, old in renamed.items():
        tensors = {name.replace(new, old, 1): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    torch.testing.assert_close(logits(folder), expected, **TOLERANCE)


def write_multimodal_checkpoint(folder):
    import transformers as hf

    write_tiny_checkpoint(folder, "gemma3")
    text = hf.AutoConfig.from_pretrained(folder).to_dict()
    vision = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "image_size": 8,
        "patch_size": 4,
    }
    config = hf.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, eos_token_id=0
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hf.Gemma3ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_quantized_checkpoints_are_refused_before_weights(folder):
    change_config(folder, quantization_config={"quant_method": "fp8"})
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match="quantized weights"):
        resolve_model(f"path:{folder}", folder.parent / "cache")


@pytest.mark.parametrize("text", ["{", "[]", '"llama"'])
def test_a_damaged_configuration_is_named(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json is not"):
        load(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja"]
)
def test_identity_follows_every_file_that_changes_outputs(folder, name):
    before = load(folder).identity
    path = folder / name
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    assert load(folder).identity != before


def test_identity_ignores_files_that_do_not(folder):
    before = load(folder).identity
    (folder / "README.md").write_text("A model.")
    shutil.copytree(folder, folder.parent / "moved")
    assert load(folder).identity == load(folder.parent / "moved").identity == before

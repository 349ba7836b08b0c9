"""Tiny random checkpoints of every supported family, for tests and dry runs: never for results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from specdec_core.config.dtype import has_int8_weights
from specdec_core.errors import ConfigError
from specdec_core.models.architecture import architecture_of
from specdec_core.models.graphs import Capture
from specdec_core.models.loading import torch_dtype
from specdec_core.models.target import Target

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")
_WINDOW = 8  # small, so that short sequences cross it


def tiny_library_model(
    family: str,
    *,
    seed: int = 0,
    dtype: str = "float64",
    vocab_size: int = 32,
    num_layers: int = 3,
    **changes: Any,
) -> Any:
    """Return a random model of `family` from `transformers`, the oracle of `tiny_target`.

    Weights are larger than at a usual initialisation, so that outputs depend on the context;
    `changes` are fields of the configuration.
    """
    import transformers as hf

    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "initializer_range": 0.4,
        "attn_implementation": "eager",
    }
    types = [("full" if i % 3 == 1 else "sliding") + "_attention" for i in range(num_layers)]
    gemma3 = {"sliding_window": _WINDOW, "layer_types": types, "query_pre_attn_scalar": 8}
    families: dict[str, tuple[Any, dict[str, Any]]] = {
        "llama": (hf.LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
        "mistral": (hf.MistralConfig, {"sliding_window": _WINDOW}),
        "qwen2": (hf.Qwen2Config, {"tie_word_embeddings": True}),
        "qwen3": (hf.Qwen3Config, {}),
        "gemma3": (hf.Gemma3TextConfig, gemma3),
    }
    if family not in families:
        raise ConfigError(f"family {family!r} is unknown: choose one of {', '.join(FAMILIES)}")
    kind, own = families[family]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = hf.AutoModelForCausalLM.from_config(kind(**{**common, **own, **changes}))
        for parameter in model.parameters():  # norms and biases too must matter
            if parameter.ndim == 1:
                torch.nn.init.normal_(parameter, mean=0.5, std=0.2)
    return model.to(torch_dtype(dtype)).eval()


def tiny_target(
    family: str,
    *,
    dtype: str = "float64",
    device: str = "cpu",
    capture: Capture | None = None,
    **options: Any,
) -> Target:
    """Return a tiny target with the weights of `tiny_library_model` of the same options.

    Args:
        family: One of `FAMILIES`.
        dtype: One of `DType`.
        device: Where it lives.
        capture: Captures its passes; None runs each anew.
        options: Of the library model.
    """
    model = tiny_library_model(family, dtype=dtype, **options)
    place = torch.device(device)
    return Target(
        architecture_of(model.config),
        model.config,
        _StateDict(model.to(place).state_dict()),
        dtype=torch_dtype(dtype),
        device=place,
        identity=f"tiny {family} {options}",
        has_int8_weights=has_int8_weights(dtype),
        capture=capture,
    )


def write_tiny_checkpoint(folder: Path, family: str = "llama", **options: Any) -> Path:
    """Write a tiny random checkpoint with a byte-level tokenizer, loadable as ``path:folder``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<eos>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    model = tiny_library_model(family, vocab_size=len(vocabulary), **options)
    model.config.eos_token_id = model.generation_config.eos_token_id = 0
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>").save_pretrained(folder)
    return folder


class _StateDict:
    """A model's state dictionary as a source of tensors."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = self._tensors[name]
        if tuple(tensor.shape) != shape:
            raise ConfigError(f"tensor {name!r} has shape {tuple(tensor.shape)}, expected {shape}")
        return tensor.detach()

"""What a decoder-only checkpoint looks like, read from its configuration and checked by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specdec_core.errors import ConfigError, UnsupportedModelError

# model_type of the checkpoint -> model_type of its text decoder.
SUPPORTED_MODEL_TYPES = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3_text",
    "gemma3": "gemma3_text",
}
_ROPE_TYPES = {"default", "linear", "llama3", "yarn"}
_ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
}


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What differs between the layers of one model.

    Args:
        window: Sliding-window width in tokens, None for full attention.
        rope: Key of the layer's rotary frequencies, None where the model has one set.
    """

    window: int | None
    rope: str | None


@dataclass(frozen=True, slots=True)
class Architecture:
    """Everything the forward pass needs to know about a checkpoint besides its weights."""

    model_type: str
    layers: tuple[LayerShape, ...]
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    activation: Literal["silu", "gelu_tanh"]
    attention_scale: float
    embed_scale: float = 1.0
    norm_offset: float = 0.0  # added to stored norm weights (Gemma stores w - 1)
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    has_qk_norm: bool = False
    has_sandwich_norms: bool = False  # norms after each half, before its residual addition
    is_tied: bool = False
    eos_ids: frozenset[int] = frozenset()

    @property
    def num_layers(self) -> int:
        """Number of transformer blocks."""
        return len(self.layers)


def check_model_type(folder: Path) -> str:
    """Return the `model_type` in `folder`/config.json if the engine runs it.

    Raises:
        ConfigError: if there is no readable config.json.
        UnsupportedModelError: if the architecture is not one of the supported, or its weights
            are quantized.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError(
            f"{folder} has no config.json: give the folder of a checkpoint"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is not a JSON object: give the folder of a checkpoint")
    model_type = config.get("model_type")
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise UnsupportedModelError(
            f"model type {model_type!r} in {path} is not supported: the engine runs "
            f"{', '.join(SUPPORTED_MODEL_TYPES)}"
        )
    if config.get("quantization_config"):
        raise UnsupportedModelError(
            f"{folder} has quantized weights, which are not supported: give the checkpoint that "
            "they were made from"
        )
    return str(model_type)


def read_architecture(folder: Path) -> tuple[Architecture, Any]:
    """Return the architecture of the checkpoint in `folder` and its library configuration.

    Raises:
        ConfigError: if there is no readable configuration.
        UnsupportedModelError: for an unknown architecture or a feature the engine lacks.
    """
    from transformers import AutoConfig, GenerationConfig

    model_type = check_model_type(folder)
    config = AutoConfig.from_pretrained(folder)
    text = config.get_text_config() if model_type == "gemma3" else config
    try:
        generation = GenerationConfig.from_pretrained(folder)
    except OSError:
        generation = None
    return architecture_of(text, generation), text


def architecture_of(config: Any, generation: Any = None) -> Architecture:
    """Return the architecture described by a `transformers` text configuration.

    Args:
        config: Configuration of a supported model type.
        generation: Generation configuration whose stop ids are added, or None.

    Raises:
        ConfigError: if a stop id is outside the vocabulary.
        UnsupportedModelError: for a feature the engine lacks; the message names it.
    """
    _refuse_unknown_features(config)
    model_type = config.model_type
    is_gemma = model_type == "gemma3_text"
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    query_scalar = config.query_pre_attn_scalar if is_gemma else head_dim
    bias = bool(getattr(config, "attention_bias", False))
    stop_ids = _id_set(getattr(config, "eos_token_id", None))
    stop_ids |= _id_set(getattr(generation, "eos_token_id", None))
    return Architecture(
        model_type=model_type,
        layers=tuple(_layer_shape(config, index) for index in range(config.num_hidden_layers)),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        vocab_size=config.vocab_size,
        max_positions=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        activation=_ACTIVATIONS[_activation_name(config)],
        attention_scale=query_scalar**-0.5,
        embed_scale=config.hidden_size**0.5 if is_gemma else 1.0,
        norm_offset=1.0 if is_gemma else 0.0,
        has_qkv_bias=bias or model_type == "qwen2",
        has_output_bias=bias and model_type != "qwen2",
        has_mlp_bias=bool(getattr(config, "mlp_bias", False)),
        has_qk_norm=model_type in {"qwen3", "gemma3_text"},
        has_sandwich_norms=is_gemma,
        is_tied=bool(config.tie_word_embeddings),
        eos_ids=_checked_ids(stop_ids, config.vocab_size),
    )


def rope_frequencies(config: Any, rope: str | None) -> tuple[Any, float]:
    """Return inverse frequencies ``[head_dim / 2]`` and the factor on cosines and sines.

    Args:
        config: `transformers` text configuration.
        rope: Key of the layer type's parameters, None where the model has one set.
    """
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = _rope_parameters(config, rope)
    if parameters["rope_type"] != "default":
        frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, layer_type=rope)
        return frequencies, factor
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return 1.0 / parameters["rope_theta"] ** exponents, 1.0


def _rope_parameters(config: Any, rope: str | None) -> dict[str, Any]:
    parameters = config.rope_parameters
    return dict(parameters if rope is None else parameters[rope])


def _layer_shape(config: Any, index: int) -> LayerShape:
    types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    kind = types[index] if types else None
    has_window = window is not None and kind != "full_attention"
    return LayerShape(
        window=window if has_window else None,
        rope=kind if config.model_type == "gemma3_text" else None,
    )


def _activation_name(config: Any) -> str:
    return str(getattr(config, "hidden_activation", None) or config.hidden_act)


def _refuse_unknown_features(config: Any) -> None:
    def refuse(what: str) -> None:
        raise UnsupportedModelError(f"{config.model_type} checkpoint uses {what}: not supported")

    if SUPPORTED_MODEL_TYPES.get(config.model_type) != config.model_type:
        refuse("an unknown text decoder")
    if _activation_name(config) not in _ACTIVATIONS:
        refuse(f"activation {_activation_name(config)!r} (known: {', '.join(_ACTIVATIONS)})")
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, name, None) is not None:
            refuse(name)
    if getattr(config, "use_bidirectional_attention", False):
        refuse("bidirectional attention")
    keys = sorted(set(config.layer_types)) if config.model_type == "gemma3_text" else [None]
    for key in keys:
        kind = _rope_parameters(config, key).get("rope_type", "default")
        if kind not in _ROPE_TYPES:
            refuse(f"rotary embedding type {kind!r} (known: {', '.join(sorted(_ROPE_TYPES))})")


def _id_set(value: int | list[int] | None) -> set[int]:
    if value is None:
        return set()
    return set(value) if isinstance(value, (list, tuple)) else {value}


def _checked_ids(ids: set[int], vocab_size: int) -> frozenset[int]:
    outside = sorted(token for token in ids if not 0 <= token < vocab_size)
    if outside:
        raise ConfigError(
            f"stop token ids {outside} are outside the vocabulary of {vocab_size}: correct "
            "eos_token_id in config.json or generation_config.json"
        )
    return frozenset(ids)

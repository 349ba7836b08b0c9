"""Names of an EAGLE head's tensors and options in the layouts of serving engines."""

from __future__ import annotations

from typing import Any, Literal, get_args

from specdec_core.drafts.specs import BlockShape, EagleSpec
from specdec_core.errors import ConfigError

Layout = Literal["speculators", "sglang"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_PROPOSED_TOKENS = 7

# Of parts of the decoder layer, below the layer's own name.
_LAYER = {
    "embedding_norm": "input_layernorm",
    "state_norm": "hidden_norm",
    "block.q_proj": "self_attn.q_proj",
    "block.k_proj": "self_attn.k_proj",
    "block.v_proj": "self_attn.v_proj",
    "block.o_proj": "self_attn.o_proj",
    "block.gate_proj": "mlp.gate_proj",
    "block.up_proj": "mlp.up_proj",
    "block.down_proj": "mlp.down_proj",
    "block.mlp_norm": "post_attention_layernorm",
}
_LAYER_NAMES: dict[tuple[Layout, int], str] = {
    ("speculators", 1): "transformer",
    ("speculators", 3): "layers.0",
    ("sglang", 1): "layers.0",
    ("sglang", 3): "midlayer",
}


def served_name(name: str, version: Literal[1, 3], layout: Layout) -> str:
    """Return what a layout calls the tensor that `EagleHead` calls `name`."""
    part, _, kind = name.rpartition(".")
    if part in _LAYER:
        return f"{_LAYER_NAMES[layout, version]}.{_LAYER[part]}.{kind}"
    if part == "fc" and (layout, version) == ("speculators", 1):
        return f"fusion_fc.{kind}"
    return name


def served_config(
    spec: EagleSpec, layout: Layout, target: Any, reference: str, embed_scale: float
) -> dict[str, Any]:
    """Return the configuration of a head in a layout.

    Args:
        spec: The head.
        layout: Whose.
        target: `transformers` text configuration of the target.
        reference: Of the target.
        embed_scale: What the target multiplies embeddings by.

    Raises:
        ConfigError: if the head has parts that a Llama layer lacks, or reads the embedding alone.
    """
    _refuse_foreign_parts(spec.block, embed_scale)
    if spec.version == 3 and min(spec.taps) < 1:
        raise ConfigError(
            f"the head reads hidden states {spec.taps}; served layouts name outputs of blocks, "
            "which the embedding, 0, is not: train it with other taps"
        )
    layer = _layer_config(spec, target)
    num_ids = spec.draft_vocab_size or target.vocab_size
    if layout == "speculators":
        return _speculators(spec, layer, num_ids, reference)
    document = {**layer, "architectures": [f"LlamaForCausalLMEagle{'3' * (spec.version == 3)}"]}
    if spec.version == 3:
        # Numbers of blocks whose outputs are read: stream k enters block k and leaves block k - 1.
        ids = [tap - 1 for tap in spec.taps]
        eagle = {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True}
        document |= {"draft_vocab_size": num_ids, "eagle_config": eagle}
    else:
        document["bias"] = True
    return document


def _speculators(
    spec: EagleSpec, layer: dict[str, Any], num_ids: int, reference: str
) -> dict[str, Any]:
    algorithm = "eagle3" if spec.version == 3 else "eagle"
    proposal = {"proposal_type": "greedy", "speculative_tokens": _PROPOSED_TOKENS}
    document: dict[str, Any] = {
        "speculators_model_type": algorithm,
        "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": reference.partition(":")[2], "architectures": []},
        },
    }
    if spec.version == 1:
        layer_name = "LlamaDecoderLayer"
        options = {"transformer_layer_architecture": layer_name, "fusion_bias": True}
        return {**document, "architectures": ["EagleSpeculator"], **options, "layernorms": False}
    return {
        **document,
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": num_ids,
        "norm_before_residual": False,
        "norm_before_fc": False,
        "eagle_aux_hidden_state_layer_ids": list(spec.taps),
    }


def _layer_config(spec: EagleSpec, target: Any) -> dict[str, Any]:
    """Return the fields of a Llama configuration with the one layer that the head is."""
    shape = spec.block
    rope = dict(target.rope_parameters)
    rope = dict(rope[shape.rope]) if shape.rope is not None else rope
    theta = rope.pop("rope_theta")
    return {
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "max_position_embeddings": target.max_position_embeddings,
        "rope_theta": theta,
        "rope_scaling": None if rope.get("rope_type", "default") == "default" else rope,
        "vocab_size": target.vocab_size,
        "attention_bias": shape.has_qkv_bias,
        "mlp_bias": shape.has_mlp_bias,
        "bos_token_id": target.bos_token_id,
        "eos_token_id": target.eos_token_id,
        "tie_word_embeddings": False,
    }


def _refuse_foreign_parts(shape: BlockShape, embed_scale: float) -> None:
    foreign = {
        "norms on queries and keys": shape.has_qk_norm,
        "norms behind attention and MLP": shape.has_sandwich_norms,
        "an offset on norm weights": shape.norm_offset != 0.0,
        f"activation {shape.activation}": shape.activation != "silu",
        "biases on some attention maps only": shape.has_qkv_bias != shape.has_output_bias,
        "its own attention scale": shape.attention_scale != shape.head_dim**-0.5,
        "scaled embeddings": embed_scale != 1.0,
    }
    found = [name for name, is_there in foreign.items() if is_there]
    if found:
        raise ConfigError(
            f"the head has {', '.join(found)}: served layouts are of Llama layers; train version "
            "3, whose layer is one, on a target without scaled embeddings"
        )

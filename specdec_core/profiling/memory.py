"""What a (sparse) target needs in memory: its weights, and its cache for every token."""

from __future__ import annotations

from specdec_core.config.dtype import ComputeType, DType, compute_type, has_int8_weights
from specdec_core.models.architecture import Architecture
from specdec_core.search.step_model import half_bytes
from specdec_core.skip import SkipConfig

BYTES: dict[ComputeType, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def weight_bytes(arch: Architecture, dtype: DType, skip: SkipConfig) -> int:
    """Return the bytes of the embedding, the head and the halves that `skip` leaves.

    Norms and biases are thousandths and left out, and so are copies in another layout that an
    engine may keep. The head counts where it is not the embedding's own matrix.
    """
    per_number = BYTES[compute_type(dtype)]
    per_weight = 1 if has_int8_weights(dtype) else per_number
    attention, mlp = half_bytes(
        hidden_size=arch.hidden_size,
        intermediate_size=arch.intermediate_size,
        num_heads=arch.num_heads,
        num_kv_heads=arch.num_kv_heads,
        head_dim=arch.head_dim,
        windows=[None] * len(arch.layers),
        context=0,
        bytes_per_weight=per_weight,
        bytes_per_cached=per_number,
    )
    kept = sum(b for layer, b in enumerate(attention) if not skip.skips_attention(layer))
    kept += sum(b for layer, b in enumerate(mlp) if not skip.skips_mlp(layer))
    table = arch.vocab_size * arch.hidden_size
    return int(kept) + table * per_number + (0 if arch.is_tied else table * per_weight)


def cache_bytes_per_token(arch: Architecture, dtype: DType, skip: SkipConfig) -> int:
    """Return the bytes of one token's keys and values; a skipped attention half keeps none.

    Sliding windows keep every token here, as the engine's cache does.
    """
    slots = sum(not skip.skips_attention(layer) for layer in range(len(arch.layers)))
    return 2 * slots * arch.num_kv_heads * arch.head_dim * BYTES[compute_type(dtype)]

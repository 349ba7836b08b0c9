"""Forward passes of one target through PyTorch's kernels: the reference of our own ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdec_core.models.cache import KVCache
from specdec_core.models.layers import PassState, Plan
from specdec_core.models.masks import additive_masks, tree_positions
from specdec_core.models.passes import PassTokens
from specdec_core.models.prompt_states import PassStates
from specdec_core.models.taps import TapRecorder
from specdec_core.skip import SkipUnit, UnitKind

if TYPE_CHECKING:
    from specdec_core.models.target import Target

# Called with a half's unit, its input and its output, both [B, N, hidden].
HalfObserver = Callable[[SkipUnit, Tensor, Tensor], None]


def run_blocks(
    target: Target,
    plan: Plan,
    embedded: Tensor,
    passed: PassTokens,
    cache: KVCache,
    *,
    watch: HalfObserver | None = None,
    pending_depths: Sequence[Sequence[int]] | None = None,
    recorder: TapRecorder | None = None,
    shared: PassStates | None = None,
) -> Tensor:
    """Run the blocks of a view; their rows become pending.

    Args:
        target: Whose norms and rotary tables are used.
        plan: The view's halves.
        embedded: Scaled embeddings ``[B, N, hidden]``.
        passed: The nodes that they belong to.
        cache: The sequences' cache.
        watch: Shown every half, or None.
        pending_depths: Depths of all nodes of the trees, those of earlier passes too; None if
            there were none.
        recorder: Takes the hidden states that it wants.
        shared: Of a prompt's pass: the leading layers that are known already, which are not run
            but taken over, and the place to hold the others; None runs all.

    Returns:
        The residual stream before the final norm, ``[B, N, hidden]``.
    """
    rest = plan if shared is None else plan[shared.num_known :]
    state = _begin(target, rest, passed, cache, pending_depths)
    return run_plan(target, plan, embedded, state, watch=watch, recorder=recorder, shared=shared)


def run_plan(
    target: Target,
    plan: Plan,
    embedded: Tensor,
    state: PassState,
    *,
    watch: HalfObserver | None = None,
    recorder: TapRecorder | None = None,
    shared: PassStates | None = None,
) -> Tensor:
    """Run the blocks of a view on a pass whose rows are reserved; as `run_blocks` otherwise."""
    x = embedded
    for layer, (attention, slot, mlp) in enumerate(plan):
        if recorder is not None:
            recorder.take(layer, x)
        if shared is not None and layer < shared.num_known:
            x = shared.take_over(layer, slot)
            continue
        if attention is not None:
            delta = attention(x, state, slot)
            if watch is not None:
                watch(SkipUnit(layer, UnitKind.ATTENTION), x, delta)
            x = x + delta
        if mlp is not None:
            delta = mlp(x)
            if watch is not None:
                watch(SkipUnit(layer, UnitKind.MLP), x, delta)
            x = x + delta
        if shared is not None:
            shared.keep(x, None if attention is None else slot)
    if recorder is not None:
        recorder.take(target.num_layers, x)
        recorder.finish(x, target.final_norm)
    return x


def _begin(
    target: Target,
    plan: Plan,
    passed: PassTokens,
    cache: KVCache,
    pending_depths: Sequence[Sequence[int]] | None,
) -> PassState:
    """Reserve the rows of a pass and return what the layers of `plan` share."""
    lengths = list(cache.lengths)
    positions = tree_positions(lengths, passed.depths)
    total = cache.begin(passed.counts, is_continued=pending_depths is not None)
    masks = additive_masks(
        lengths,
        passed.ancestors,
        positions,
        total,
        {attention.shape.window for attention, _, _ in plan if attention is not None},
        num_groups=target.arch.num_heads // target.arch.num_kv_heads,
        dtype=target.dtype,
        device=target.device,
        pending_positions=tree_positions(lengths, pending_depths)
        if pending_depths is not None
        else positions,
    )
    on_device = torch.from_numpy(positions).to(target.device)
    return PassState(cache, masks, target.rotary.at(on_device, int(positions.max())))

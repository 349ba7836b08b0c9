"""Chances of acceptance along a given output, from a draft's training pass over it.

The draft reads the whole output at once, teacher-forced, by the code that trains it: no cache, no
tree, no decode loop. So the chances are an independent reference for what decoding realises.

Source: Leviathan et al. 2023, section 3.3, for drawn tokens; Progressive Tree Drafting, algorithm
2, for candidates that are chosen: the target's mass on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.decoding.ranking import top_rows
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, DraftPass, Head

# Positions whose logits are held at once.
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class AcceptanceRule:
    """How draft tokens are made and verified.

    Attributes:
        temperature: Of target and draft; 0 takes the likeliest token.
        children: Likeliest tokens offered below an accepted one, by depth; where tokens are drawn
            one by one ones.
        is_drawn: Whether they are drawn from the draft's distribution; under greedy decoding
            nothing is.
    """

    temperature: float
    children: tuple[int, ...]
    is_drawn: bool = False


@torch.inference_mode()
def acceptance_chances(
    output: DraftOutput,
    batch: TrainingBatch,
    target_head: Head,
    num_prompt: int,
    rule: AcceptanceRule,
) -> list[list[float]]:
    """Return by depth and by place in the output the chance that a draft token is accepted.

    Mass of the target on ids that a narrowed draft lacks is never accepted.

    Args:
        output: The draft's passes over `batch`.
        batch: One sequence, prompt and output, with the input of the target's head.
        target_head: Of the target.
        num_prompt: Tokens of the prompt.
        rule: How tokens are made and verified.

    Returns:
        As many depths as `rule` has, each with one chance per output token; 0 where the draft
        predicts nothing.
    """
    num_tokens = int(batch.lengths[0])
    chances: list[list[float]] = [[] for _ in rule.children]
    for start in range(num_prompt, num_tokens, _CHUNK):
        places = torch.arange(start, min(start + _CHUNK, num_tokens))
        target_rows = _logits(batch.hidden[0, places - 1], target_head)
        tokens = batch.input_ids[0, places].cpu()
        known: dict[tuple[int, int], list[float]] = {}  # most depths are alike
        for depth, num_children in enumerate(rule.children):
            key = min(depth, len(output.passes) - 1), num_children
            if key not in known:
                one = output.passes[key[0]]
                rows, ids = _pass_rows(one, places), _ids_of(one)
                found = _chances(rows, ids, target_rows, tokens, rule, num_children=num_children)
                known[key] = found.masked_fill(~_is_predicted(one, places), 0.0).tolist()
            chances[depth] += known[key]
    return chances


def _chances(
    draft_rows: Tensor,
    ids: Tensor | None,
    target_rows: Tensor,
    tokens: Tensor,
    rule: AcceptanceRule,
    *,
    num_children: int,
) -> Tensor:
    """Return the chance at every row, ``[n]`` float64.

    Args:
        draft_rows: ``[n, V_d]``.
        ids: ``[V_d]`` the target's ids of columns; None where they are equal.
        target_rows: ``[n, V]``.
        tokens: ``[n]`` what follows in the output.
        rule: How tokens are made and verified.
        num_children: Tokens offered.
    """
    if ids is None:
        draft_rows = draft_rows[:, : target_rows.shape[1]]
        ids = torch.arange(draft_rows.shape[1])
    if rule.temperature == 0.0:
        best = ids[_top(draft_rows, num_children)]
        return (best == tokens[:, None]).any(1).double()
    p = torch.softmax(target_rows.double() / rule.temperature, -1)
    if not rule.is_drawn:
        return p.gather(1, ids[_top(draft_rows, num_children)]).sum(1)
    q = torch.softmax(draft_rows.double() / rule.temperature, -1)
    return torch.minimum(p[:, ids], q).sum(1)


def _top(rows: Tensor, num: int) -> Tensor:
    """Return the `num` best columns, equal ones by rising number, ``[n, num]``."""
    return torch.tensor(top_rows(rows, num).ids)


def _pass_rows(one: DraftPass, places: Tensor) -> Tensor:
    """Return the logits with which a pass predicts the tokens at `places`, ``[n, V_d]``."""
    rows = (places - one.shift).clamp(min=0)
    return _logits(one.hidden[0, rows], one.head)


def _is_predicted(one: DraftPass, places: Tensor) -> Tensor:
    rows = places - one.shift
    is_there = rows >= 0
    return is_there if one.mask is None else is_there & one.mask[0, rows.clamp(min=0)].cpu()


def _ids_of(one: DraftPass) -> Tensor | None:
    return None if one.head.target_ids is None else one.head.target_ids.cpu()


def _logits(hidden: Tensor, head: Head) -> Tensor:
    """Return logits in the head's own type as decoding has them, then float32 or better, on CPU."""
    found = functional.linear(hidden.to(head.weight), head.weight, head.bias)
    return found.to(torch.promote_types(found.dtype, torch.float32)).cpu()


def one_sequence(
    token_ids: Sequence[int], num_prompt: int, hidden: Tensor, taps: Tensor | None
) -> TrainingBatch:
    """Return prompt and output as a batch of one.

    Args:
        token_ids: Of both.
        num_prompt: Tokens of the prompt.
        hidden: ``[N, h]``: input of the target's head after each token.
        taps: ``[N, T * h]`` or None.
    """
    mask = torch.arange(len(token_ids)) >= num_prompt
    return TrainingBatch(
        input_ids=torch.tensor([token_ids], device=hidden.device),
        response_mask=mask[None].to(hidden.device),
        lengths=torch.tensor([len(token_ids)], device=hidden.device),
        hidden=hidden[None],
        taps=None if taps is None else taps[None],
        sample_ids=("output",),
    )

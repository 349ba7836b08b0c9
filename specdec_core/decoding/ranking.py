"""Rankings of logit rows: most likely ids, ties to the lowest id, without widening the logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

# Vocabularies divide by one of these; a maximum per block first is about three times faster than
# a maximum or top-k over a whole row of 262144 bf16 logits on a processor, and gives the same.
_BLOCKS = (256, 128, 64, 32)
# Ids ranked beyond the k asked for, so that a run of equal logits at the cut rarely needs the
# whole row again.
_SPARE = 8
# Gap of a token without a rival; finite, so that it can be stored, and beyond every tie.
NO_RIVAL_GAP = 1e9


@dataclass(frozen=True, slots=True)
class TopRows:
    """The best ids of R rows.

    Attributes:
        ids: Per row, best first, k ids or the whole vocabulary where that is smaller.
        gaps: Per row, best logit minus second best; `NO_RIVAL_GAP` for a vocabulary of one.
    """

    ids: list[list[int]]
    gaps: list[float]


def first_argmax(logits: torch.Tensor) -> torch.Tensor:
    """Return the lowest id among the largest logits of every row, shape of `logits` less the last.

    Args:
        logits: [..., V], any floating dtype.
    """
    block = _block(logits.shape[-1], 1)
    if block is None:
        return logits.max(-1).indices
    blocks = logits.reshape(*logits.shape[:-1], -1, block)  # [..., V / block, block]
    best = blocks.amax(-1).max(-1).indices[..., None, None]  # [..., 1, 1]
    inside = blocks.gather(-2, best.expand(*best.shape[:-1], block)).max(-1).indices  # [..., 1]
    return (best[..., 0] * block + inside)[..., 0]


def top_rows(rows: torch.Tensor, k: int) -> TopRows:
    """Return the k best ids of every row, by falling logit, equal logits by rising id.

    The order is total, so a longer ranking begins with every shorter one, and rank 0 is
    `first_argmax`.

    Args:
        rows: [R, V], any floating dtype.
        k: Ids per row, at least 1.
    """
    vocab_size = rows.shape[-1]
    k = min(k, vocab_size)
    num = min(max(k, 2) + _SPARE, vocab_size)
    value_rows, id_rows = (found.tolist() for found in largest(rows, num))
    ids = []
    for index, (values, found) in enumerate(zip(value_rows, id_rows, strict=True)):
        if num < vocab_size and values[k - 1] == values[-1]:
            ids.append(_resolve_run(rows[index], values, found, k))
        elif len(set(values)) == num:
            ids.append(found[:k])
        else:
            ordered = sorted(zip((-value for value in values), found, strict=True))
            ids.append([token for _, token in ordered[:k]])
    gaps = [values[0] - values[1] if vocab_size > 1 else NO_RIVAL_GAP for values in value_rows]
    return TopRows(ids, gaps)


def select_rows(
    ranked: TopRows | None, logits: torch.Tensor, flat: Sequence[int], num_ranked: int
) -> tuple[list[list[int]], list[float]]:
    """Return ids and gaps of the rows `flat` of [B * N, V], ranking them now if none is ranked.

    Args:
        ranked: The ranking of all rows, or None.
        logits: [B, N, V].
        flat: Rows, counted over the whole batch.
        num_ranked: Ids per row.
    """
    if ranked is not None:
        return [ranked.ids[row] for row in flat], [ranked.gaps[row] for row in flat]
    if not flat:
        return [], []
    index = torch.tensor(flat, device=logits.device)
    found = top_rows(logits.flatten(0, 1).index_select(0, index), num_ranked)
    return found.ids, found.gaps


def probabilities_of(logits: torch.Tensor, ids: Sequence[Sequence[int]]) -> list[list[float]]:
    """Return the probability of every id of a ranking at temperature 1, R rows of k.

    Args:
        logits: [R, V], any floating dtype; computed in float32 or better.
        ids: R rows of k ids.
    """
    rows = logits.to(torch.promote_types(logits.dtype, torch.float32))
    chosen = rows.gather(1, torch.tensor(ids, device=rows.device))  # [R, k]
    found: list[list[float]] = (chosen - rows.logsumexp(1, keepdim=True)).exp().tolist()
    return found


def _block(vocab_size: int, num: int) -> int | None:
    """Return the block length worth searching in two stages for `num` ids, or None."""
    usable = (b for b in _BLOCKS if vocab_size % b == 0 and vocab_size // b >= 4 * num)
    return next(usable, None)


def largest(rows: torch.Tensor, num: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `num` largest values of every row, falling, and their ids, [R, num] each.

    Every value above the last one returned is there: it lies in a block whose maximum is above
    it as well, and fewer than `num` blocks are.
    """
    block = _block(rows.shape[-1], num)
    if block is None:
        found = rows.topk(num)
        return found.values, found.indices
    blocks = rows.reshape(rows.shape[0], -1, block)  # [R, V / block, block]
    chosen = blocks.amax(-1).topk(num, sorted=False).indices  # [R, num]
    index = chosen[..., None].expand(-1, -1, block)
    found = blocks.gather(1, index).flatten(1).topk(num)
    ids = chosen.gather(1, found.indices // block) * block + found.indices % block
    return found.values, ids


def _resolve_run(row: torch.Tensor, values: list[float], ids: list[int], k: int) -> list[int]:
    """Return the k best ids of a row whose ranking ends inside a run of equal logits."""
    edge = values[-1]
    above = sorted((-v, token) for v, token in zip(values, ids, strict=True) if v > edge)
    best = [token for _, token in above]
    run = (row == edge).nonzero()[: k - len(best), 0].tolist()
    return best + run

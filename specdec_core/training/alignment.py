"""Which row of hidden states or logits predicts which token: said here once, used by all.

Everything that compares predictions with tokens is indexed by the *predicted position* t. A pass
with shift k predicts token t from its row t - k; the target is a pass with shift 1::

    position t        0     1     2     3     4     5
    token             The   cat   sat   on    mats  <pad>
    response_mask     .     .     x     x     x     .        of the token at t itself
    row, shift 1      -     0     1     2     3     4        what the target knows of token t
    row, shift 2      -     -     0     1     2     3        second head or unrolled step
    row, shift 3      -     -     -     0     1     2
    mask, shift 1     .     .     x     x     x     .
    mask, shift 3     .     .     .     x     x     .        token 2 has no row: prompt too short

The first response token counts, though its row is one of the prompt; token 0 has no row at all.

Source: EAL (arXiv 2609.24150), its training loss by predicted position.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

Place = TypeVar("Place", int, Tensor)


def row_of(position: Place, shift: int) -> Place:
    """Return the row that predicts the token at `position`; below 0 if there is none.

    Args:
        position: 0-based place of the predicted token in its sequence; or places in the rows of
            all sequences one behind the other, where none lacks its row.
        shift: How many places behind a row its prediction lies, at least 1.
    """
    return position - shift


def by_position(rows: Tensor, shift: int) -> Tensor:
    """Return values of rows at the positions that the rows predict.

    Args:
        rows: ``[B, N, ...]``, by row.
        shift: As in `row_of`.

    Returns:
        ``[B, N, ...]`` by predicted position, zero where there is no row. Differentiable.
    """
    num_rows = rows.shape[1]
    first = min(-row_of(0, shift), num_rows)
    missing = rows.new_zeros((rows.shape[0], first, *rows.shape[2:]))
    return torch.cat([missing, rows[:, : num_rows - first]], dim=1)


def prediction_mask(
    response_mask: Tensor,
    shift: int,
    row_mask: Tensor | None = None,
    document_ids: Tensor | None = None,
) -> Tensor:
    """Return which response tokens have a row that predicts them.

    Args:
        response_mask: ``[B, N]`` bool, by position: tokens of responses.
        shift: As in `row_of`.
        row_mask: ``[B, N]`` bool, by row: rows with a prediction; None for all.
        document_ids: ``[B, N]`` int: document of each token, where sequences are packed; a row
            predicts tokens of its own document only.

    Returns:
        ``[B, N]`` bool, by predicted position.
    """
    rows = torch.ones_like(response_mask) if row_mask is None else row_mask
    mask = response_mask & by_position(rows, shift)
    if document_ids is not None:
        mask = mask & (by_position(document_ids, shift) == document_ids)
    return mask

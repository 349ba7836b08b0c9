"""Windows of draft tokens under teacher forcing, and how many of their tokens are accepted.

A window that starts at predicted position t stands for one proposal: its token j is predicted at
position t + j by pass min(j, J - 1) of the draft's J passes. With acceptance a at each place the
accepted length L_t has ``P(L_t >= k)`` equal to the product of the first k values of the window.
An independent draft model has one pass for all depths, and windows are slices of one row. No window
may be longer than proposals are: Medusa's last head stands for no deeper one.

Values and gradients are sums of products without divisions: exact where acceptance is 0.

Source: EAL (arXiv 2609.24150), expected acceptance length; several passes are our extension.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def along_windows(values: Tensor, gamma: int) -> Tensor:
    """Return the values that each window meets.

    Args:
        values: ``[J, B, N]`` by pass and predicted position.
        gamma: Window length, tokens.

    Returns:
        ``[gamma, B, N]``: entry ``[j, b, t]`` is ``values[min(j, J - 1), b, t + j]``, zero (False)
        behind the end of the sequence.
    """
    last, length = values.shape[0] - 1, values.shape[2]
    met = [
        functional.pad(values[min(j, last), :, min(j, length) :], (0, min(j, length)))
        for j in range(gamma)
    ]
    return torch.stack(met)


def valid_windows(masks: Tensor, gamma: int, document_ids: Tensor | None = None) -> Tensor:
    """Return which positions start a window of predicted response tokens of one document.

    Args:
        masks: ``[J, B, N]`` bool: positions that each pass predicts.
        gamma: Window length, tokens.
        document_ids: ``[B, N]`` int where sequences are packed.

    Returns:
        ``[B, N]`` bool by first position.
    """
    valid = along_windows(masks, gamma).all(0)
    if document_ids is not None:
        valid = valid & (along_windows(document_ids.unsqueeze(0), gamma) == document_ids).all(0)
    return valid


def reach(acceptance: Tensor, gamma: int) -> Tensor:
    """Return the chance that at least k tokens of each window are accepted.

    Args:
        acceptance: ``[J, B, N]`` in [0, 1].
        gamma: Window length, tokens.

    Returns:
        ``[gamma, B, N]``: ``P(L_t >= k)`` at index k - 1.
    """
    met = along_windows(acceptance, gamma)
    chances = [met[0]]
    for depth in range(1, gamma):
        chances.append(chances[-1] * met[depth])
    return torch.stack(chances)


def expected_length(acceptance: Tensor, gamma: int) -> Tensor:
    """Return the expected number of accepted tokens of each window.

    Args:
        acceptance: ``[J, B, N]`` in [0, 1].
        gamma: Window length, tokens.

    Returns:
        ``[B, N]`` in [0, gamma] by first position.
    """
    return reach(acceptance, gamma).sum(0)

"""AdamW with decay where it belongs, and clipping by the norm of the whole gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW

from specdec_core.training.workers import Workers


def make_optimizer(parameters: Mapping[str, nn.Parameter], weight_decay: float) -> AdamW:
    """Return AdamW over the parameters; norms and biases, which are vectors, do not decay.

    The rate is set before each step.

    Source: AdamW (Loshchilov and Hutter 2019), with betas 0.9 and 0.999.
    """
    matrices = [p for p in parameters.values() if p.ndim >= 2]
    vectors = [p for p in parameters.values() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=0.0, foreach=False)


def set_learning_rate(optimizer: AdamW, rate: float) -> None:
    """Set the rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip_gradients(
    parameters: Mapping[str, nn.Parameter], max_norm: float, workers: Workers
) -> float:
    """Scale gradients so that their norm is at most `max_norm`; return the norm before that.

    Gradients that every worker has whole count once, shards are added up over the workers.
    """
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    whole = sum(_square(g) for g in gradients if not isinstance(g, DTensor))
    shards = sum(_square(g.to_local()) for g in gradients if isinstance(g, DTensor))
    square = float(whole) + workers.sums({"shards": float(shards)})["shards"]
    norm = float(square**0.5)
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm


def _square(gradient: Tensor) -> float:
    return float(torch.linalg.vector_norm(gradient.detach(), dtype=torch.float64)) ** 2

"""First weights of learned drafters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from specdec_core.drafts.checkpoint import LearnedDraft, new_module
from specdec_core.drafts.specs import DraftSpec, DraftTarget
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.randomness import derive_seed, uniform_stream

if TYPE_CHECKING:
    from specdec_core.models.target import Target


def initialise(module: nn.Module, seed: int) -> None:
    """Set the linear maps of a new drafter: uniform within ``1 / sqrt(inputs)``, biases zero.

    The numbers are functions of seed and name alone. Norms keep what they start with.
    """
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.ndim == 2:
                start = derive_seed(seed, "weights", name)
                places = torch.arange(parameter.numel(), device=parameter.device)
                uniform = uniform_stream(start, places).view_as(parameter)
                parameter.copy_((2.0 * uniform - 1.0) * parameter.shape[1] ** -0.5)


def random_draft(
    spec: DraftSpec, target: Target, *, seed: int = 0, vocabulary: DraftVocabulary | None = None
) -> LearnedDraft:
    """Return an untrained drafter for a loaded target, every linear map of it random."""
    arch = target.arch
    module = new_module(spec, arch.vocab_size).to(target.dtype)
    initialise(module, seed)
    facts = DraftTarget.of(target.identity, arch)
    moved = module.to(target.device).eval().requires_grad_(requires_grad=False)
    return LearnedDraft(moved, vocabulary, facts)

"""Untrained learned drafters for tests: for scripted targets, tiny models, and on disk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from specdec_core.drafts.checkpoint import LearnedDraft, save_draft
from specdec_core.drafts.eagle import EagleHead
from specdec_core.drafts.eagle_training import EagleModule, EagleTraining
from specdec_core.drafts.initial import random_draft
from specdec_core.drafts.loading import packed_for
from specdec_core.drafts.specs import DraftSpec, EagleSpec, MedusaSpec
from specdec_core.drafts.trainable import FrozenEnds
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.models.architecture import Architecture
from specdec_core.models.rotary import RotaryTable
from specdec_core.models.target import Target
from specdec_core.models.tiny import tiny_library_model, tiny_target
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import Head
from specdec_core.training.target import FrozenTarget

KINDS = ("eagle", "eagle3", "eagle3-narrow", "medusa", "medusa-narrow")


def narrow_vocabulary(kind: str, vocab_size: int) -> DraftVocabulary | None:
    """Return all ids but the second where the kind is narrowed."""
    if not kind.endswith("-narrow"):
        return None
    return DraftVocabulary([0, *range(2, vocab_size)])


def spec_for(kind: str, arch: Architecture, num_heads: int = 4) -> DraftSpec:
    vocabulary = narrow_vocabulary(kind, arch.vocab_size)
    size = None if vocabulary is None else len(vocabulary)
    if kind.startswith("medusa"):
        return MedusaSpec(hidden_size=arch.hidden_size, num_heads=num_heads, draft_vocab_size=size)
    return EagleSpec.of_target(arch, 3 if "3" in kind else 1, size)


def make_draft(kind: str, target: Target, *, seed: int = 0, is_packed: bool = True) -> LearnedDraft:
    vocabulary = narrow_vocabulary(kind, target.arch.vocab_size)
    spec = spec_for(kind, target.arch)
    draft = random_draft(spec, target, seed=seed, vocabulary=vocabulary)
    return packed_for(draft, target) if is_packed else draft


def write_draft(folder: Path, kind: str, target: Target, *, seed: int = 0) -> LearnedDraft:
    """Write an untrained drafter of a target and return it."""
    draft = make_draft(kind, target, seed=seed, is_packed=False)
    save_draft(folder, draft.spec, draft.module, target=draft.target, vocabulary=draft.vocabulary)
    return draft


@cache
def scripted_target(vocab_size: int) -> Target:
    """Return a model with the sizes of a scripted target: as many features as ids, two blocks."""
    return tiny_target(
        "llama",
        vocab_size=vocab_size,
        hidden_size=vocab_size,
        num_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
    )


@cache
def scripted_draft(kind: str, vocab_size: int, seed: int) -> LearnedDraft:
    """Return an untrained drafter for a scripted target."""
    return make_draft(kind, scripted_target(vocab_size), seed=seed)


def training_module(
    family: str, kind: str, *, num_steps: int = 4, seed: int = 0, **options: object
) -> tuple[Target, EagleModule]:
    """Return a tiny target and the training module of an untrained EAGLE head of it, float64."""
    target = tiny_target(family, **options)
    library = tiny_library_model(family, **options)
    weights = library.state_dict()
    embedding = weights["model.embed_tokens.weight"]
    head = weights.get("lm_head.weight", embedding)
    draft = make_draft(kind, target, seed=seed, is_packed=False)
    assert isinstance(draft.module, EagleHead)
    ends = FrozenEnds(embedding, target.embed_scale, Head(head))
    rotary = RotaryTable(target.arch, library.config, target.dtype, target.device)
    training = EagleTraining(num_steps=num_steps, feature_noise=0.0)
    draft.module.requires_grad_()
    return target, EagleModule(draft.module, ends, rotary, training, draft.vocabulary)


def batch_of(
    target: Target, sequences: Sequence[Sequence[int]], taps: Sequence[int], num_prompt: int = 1
) -> TrainingBatch:
    """Return what training reads of sequences whose first tokens are a prompt."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    width = int(lengths.max())
    ids = torch.tensor([[*one, *[0] * (width - len(one))] for one in sequences])
    hidden, tapped = FrozenTarget(target, Head(ids)).batch_states(ids, lengths, taps or (0,))
    places = torch.arange(width)[None]
    mask = (places >= num_prompt) & (places < lengths[:, None])
    names = tuple(f"sample {row}" for row in range(len(sequences)))
    return TrainingBatch(ids, mask, lengths, hidden, tapped if taps else None, names)

"""Learned drafters in memory for decoding, shared by all that draft for one target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specdec_core.drafts.checkpoint import LearnedDraft, load_draft
from specdec_core.drafts.initial import random_draft
from specdec_core.drafts.manifest import check_target, read_draft_manifest
from specdec_core.drafts.specs import DraftSpec, EagleSpec, TargetFacts
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.models.linear import Storage
from specdec_core.models.native.weights import Packer

if TYPE_CHECKING:
    from specdec_core.models.target import Target

# Drafters kept beside a target; a comparison alternates between a few.
_MOST_KEPT = 4


def draft_for(folder: str, target: Target, *, allows_other: bool = False) -> LearnedDraft:
    """Return the drafter in `folder`, ready to draft for `target`.

    It is loaded once per target and content; the few used last are kept with the target.

    Args:
        folder: Of the checkpoint.
        target: The loaded target.
        allows_other: Whether it may have been trained for another target of the same sizes.

    Raises:
        ConfigError: if the checkpoint cannot be used, or was trained for another target.
    """
    manifest = read_draft_manifest(Path(folder))
    check_target(manifest, facts_of(target), allows_other=allows_other)
    kept, key = target.companions, manifest.identity
    draft = kept.pop(key, None)
    if not isinstance(draft, LearnedDraft):
        loaded = load_draft(Path(folder), dtype=target.dtype, device=target.device)
        draft = packed_for(loaded, target)
    kept[key] = draft
    while len(kept) > _MOST_KEPT:
        del kept[next(iter(kept))]
    return draft


def packed_for(draft: LearnedDraft, target: Target) -> LearnedDraft:
    """Lay the weights of `draft` out for the kernels that `target` runs on, and return it."""
    packer = Packer(target.engine.kernels) if target.engine is not None else None
    draft.module.pack(Storage(packer))
    return draft


def stand_in(folder: str, target: Target) -> LearnedDraft:
    """Return an untrained drafter of the kind in `folder` for a target of any other sizes.

    For tests of the law of outputs, which no weights may change. A narrowed vocabulary has every
    other id.

    Raises:
        ConfigError: if there is no learned drafter.
    """
    spec = read_draft_manifest(Path(folder)).draft
    vocabulary = None
    if spec.draft_vocab_size is not None:
        vocabulary = DraftVocabulary(range(0, target.arch.vocab_size, 2))
    size = None if vocabulary is None else len(vocabulary)
    own: DraftSpec
    if isinstance(spec, EagleSpec):
        own = EagleSpec.of_target(target.arch, spec.version, size)
    else:
        sizes = {"hidden_size": target.arch.hidden_size, "draft_vocab_size": size}
        own = spec.model_copy(update=sizes)
    return packed_for(random_draft(own, target, vocabulary=vocabulary), target)


def facts_of(target: Target) -> TargetFacts:
    """Return what a drafter's manifest says of such a target."""
    arch = target.arch
    return TargetFacts(
        identity=target.identity, hidden_size=arch.hidden_size, vocab_size=arch.vocab_size
    )

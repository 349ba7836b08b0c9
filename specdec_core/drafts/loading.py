"""Learned drafters in memory for decoding, shared by all that draft for one target."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_core.drafts.checkpoint import LearnedDraft, load_draft
from specdec_core.drafts.initial import random_draft
from specdec_core.drafts.manifest import check_target, read_draft_manifest
from specdec_core.drafts.specs import DraftSpec, DraftTarget, EagleSpec
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.models.linear import Storage
from specdec_core.models.native.weights import Packer

if TYPE_CHECKING:
    from specdec_core.models.target import Target

# A comparison alternates between a few.
_MOST_KEPT = 4


class DraftShelf:
    """Learned drafters of one target in memory: each is loaded once, the few used last are kept.

    Args:
        target: What they draft for.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._kept: OrderedDict[str, LearnedDraft] = OrderedDict()

    def load(self, folder: str, allows_other: bool) -> LearnedDraft:
        """Return the drafter in `folder`, ready for decoding; the same one for the same content.

        Args:
            folder: Of the checkpoint.
            allows_other: Whether it may have been trained for another target of the same sizes.

        Raises:
            ConfigError: if the checkpoint cannot be used, or was trained for another target.
        """
        target, manifest = self._target, read_draft_manifest(Path(folder))
        facts = DraftTarget.of(target.identity, target.arch)
        check_target(manifest, facts, allows_other=allows_other)
        key = manifest.identity
        if key not in self._kept:
            loaded = load_draft(Path(folder), dtype=target.dtype, device=target.device)
            self._kept[key] = packed_for(loaded, target)
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]


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

"""New learned drafters that are ready to be trained."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from specdec_core.config.training import EagleDraft, MedusaDraft
from specdec_core.drafts.checkpoint import new_module
from specdec_core.drafts.eagle_training import EagleModule, EagleTraining, TrainableEagle
from specdec_core.drafts.initial import initialise
from specdec_core.drafts.medusa import MedusaHeads
from specdec_core.drafts.specs import DraftSpec, DraftTarget, EagleSpec, MedusaSpec, Provenance
from specdec_core.drafts.trainable import FrozenEnds, MedusaModule, TrainableMedusa
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.architecture import Architecture, read_architecture
from specdec_core.models.loading import torch_device, torch_dtype
from specdec_core.models.reference import ResolvedModel
from specdec_core.models.rotary import RotaryTable
from specdec_core.training.draft import Head
from specdec_core.training.target import load_embedding, load_head


def spec_of(
    shape: EagleDraft | MedusaDraft, arch: Architecture, vocabulary: DraftVocabulary | None = None
) -> DraftSpec:
    """Return what a drafter of the options `shape` is made of for a target.

    Raises:
        ConfigError: if the options ask for a narrowed vocabulary of another size.
    """
    size = None if vocabulary is None else len(vocabulary)
    wanted = shape.vocab_size if isinstance(shape, EagleDraft) else size
    if size != wanted:
        raise ConfigError(
            f"the draft asks for a vocabulary of {wanted} ids, but {size} are given: pass the ids "
            "most frequent in the training responses, as many as vocab_size says"
        )
    if isinstance(shape, MedusaDraft):
        return MedusaSpec(
            hidden_size=arch.hidden_size,
            num_heads=shape.num_heads,
            num_blocks=shape.num_blocks,
            draft_vocab_size=size,
        )
    return EagleSpec.of_target(arch, shape.version, size)


def new_trainable(
    shape: EagleDraft | MedusaDraft,
    model: ResolvedModel,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    vocabulary: DraftVocabulary | None = None,
    provenance: Provenance | None = None,
) -> TrainableEagle | TrainableMedusa:
    """Return a new drafter for a resolved target, ready to be trained.

    Language-model heads of its own start as the target's rows, everything else at random, Medusa's
    blocks as the identity.

    Args:
        shape: What to build.
        model: The target.
        dtype: Of the weights that are trained, and of the frozen ones beside them.
        device: Where they live.
        seed: Of first weights and of noise in training.
        vocabulary: Ids of its head, if narrowed; as many as `shape` says.
        provenance: Stored with the checkpoint.

    Raises:
        ConfigError: if options do not fit, or the target lacks a tensor.
    """
    arch, config = read_architecture(model.folder)
    spec = spec_of(shape, arch, vocabulary)
    place, kind = torch_device(device), torch_dtype(dtype)
    ends = load_ends(model.folder, dtype=dtype, device=device)
    rotary = RotaryTable(arch, config, kind, place)
    facts = DraftTarget.of(model.identity, arch, model.reference)
    return make_trainable(
        shape,
        spec,
        ends,
        rotary,
        facts,
        seed=seed,
        vocabulary=vocabulary,
        provenance=provenance or Provenance(),
    )


def load_ends(folder: Path, *, dtype: str, device: str) -> FrozenEnds:
    """Return embedding and head of the target in `folder`, in the type `dtype`.

    Raises:
        ConfigError: if it lacks one.
    """
    scale = torch.tensor(read_architecture(folder)[0].embed_scale).to(torch_dtype(dtype)).item()
    head = load_head(folder, dtype=dtype, device=device)
    return FrozenEnds(load_embedding(folder, dtype=dtype, device=device), scale, head)


def make_trainable(
    shape: EagleDraft | MedusaDraft,
    spec: DraftSpec,
    ends: FrozenEnds,
    rotary: RotaryTable,
    target: DraftTarget,
    *,
    seed: int,
    vocabulary: DraftVocabulary | None,
    provenance: Provenance,
) -> TrainableEagle | TrainableMedusa:
    """Return a new drafter from the parts of its target; see `new_trainable`."""
    frozen = ends.head
    module = new_module(spec, target.vocab_size).to(frozen.weight)
    initialise(module, seed)
    start = _rows(frozen, vocabulary)
    if isinstance(module, MedusaHeads):
        module.start_as_target(start)
        return TrainableMedusa(MedusaModule(module, vocabulary), target, provenance)
    assert isinstance(shape, EagleDraft)
    if module.spec.version == 3:
        module.start_as_target(start)
    training = EagleTraining(
        shape.num_steps, shape.regression_weight, shape.feature_noise, seed=seed
    )
    eagle = EagleModule(module, ends, rotary, training, vocabulary)
    return TrainableEagle(eagle, target, provenance)


def _rows(head: Head, vocabulary: DraftVocabulary | None) -> Tensor:
    """Return the target's head rows of a narrowed vocabulary, ``[V_d, h]``."""
    if vocabulary is None:
        return head.weight
    return head.weight[vocabulary.target_ids.to(head.weight.device)]

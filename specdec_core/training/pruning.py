"""A draft cut from its target: some of the blocks, the embedding and the head.

What is left is an ordinary checkpoint. Where its vocabulary is narrowed a file beside it says
which rows of the head drafting computes; embedding and head stay whole, so that the draft reads
every token and other programs load it as it is.

Source: layer pruning as in ShortGPT (Men et al. 2024), but for the choice: early blocks draft, as
in LayerSkip (Elhoushi et al. 2024); FR-Spec (Zhao et al. 2025), section 3, for the vocabulary by
frequency.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from specdec_core.config.base import Record
from specdec_core.config.training import PrunedDraft
from specdec_core.data.templates import chat_text
from specdec_core.drafts.provenance_file import PRUNED_FILE
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.drafts.vocabulary_file import write_vocabulary
from specdec_core.errors import ConfigError
from specdec_core.export.checkpoint import write_sparse
from specdec_core.models.architecture import read_architecture
from specdec_core.models.files import writing
from specdec_core.models.loading import load_tokenizer
from specdec_core.models.reference import ResolvedModel
from specdec_core.skip import SkipConfig, SkipUnit

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONVERSATION = (
    {"role": "system", "content": "a"},
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "a"},
)


class PrunedCheckpoint(Record):
    """What was cut from a target; stored beside the weights."""

    source: str
    source_identity: str
    layers: tuple[int, ...]
    """Blocks of the target that were kept, 0-based, in order."""
    num_ids: int | None = None
    """Ids of a narrowed vocabulary; None where it is whole."""


def kept_layers(shape: PrunedDraft, num_layers: int) -> tuple[int, ...]:
    """Return the blocks of a target that a draft keeps, 0-based and rising.

    Without a choice they are the first ones: each goes on getting the input that it was trained
    for, and a short training learns more from there than from blocks that are spread out.

    Args:
        shape: The choice, or how many.
        num_layers: Blocks of the target.

    Raises:
        ConfigError: if the choice is not a rising list of the target's blocks, or there are fewer.
    """
    chosen = shape.layers
    if chosen:
        is_rising = list(chosen) == sorted(set(chosen))
        if not is_rising or not 0 <= chosen[0] <= chosen[-1] < num_layers:
            raise ConfigError(
                f"layers {'/'.join(map(str, chosen))} cannot be kept of a target with blocks 0 to "
                f"{num_layers - 1}: name each once, in rising order"
            )
        return tuple(chosen)
    num = shape.num_layers
    if num > num_layers:
        raise ConfigError(
            f"{num} blocks cannot be kept of a target with {num_layers}: ask for fewer"
        )
    return tuple(range(num))


def frequent_vocabulary(counts: Tensor, size: int, model: ResolvedModel) -> DraftVocabulary:
    """Return the ids most frequent in the training responses, and those a draft cannot do without.

    These are stop ids, special ids of the tokenizer, and everything its chat template writes
    around messages.

    Args:
        counts: ``[V]``, of `DraftData.token_counts`.
        size: Ids kept, those that always are included.
        model: The target.

    Raises:
        ConfigError: if there is no room for what must be in it, or there are fewer ids.
    """
    arch, _ = read_architecture(model.folder)
    tokenizer = load_tokenizer(model.folder)
    always = set(arch.eos_ids) | set(tokenizer.all_special_ids) | _template_ids(tokenizer)
    inside = {token for token in always if 0 <= token < arch.vocab_size}
    return DraftVocabulary.most_frequent(counts, size, always=inside)


def prune_target(
    model: ResolvedModel,
    shape: PrunedDraft,
    folder: Path,
    *,
    counts: Tensor | None = None,
) -> PrunedCheckpoint:
    """Write a draft cut from `model`, in the target's own type, untrained.

    Args:
        model: The target.
        shape: Blocks and vocabulary.
        folder: Where to write; must not exist. It appears once everything is in it.
        counts: ``[V]`` how often the training responses use each id; only for a narrowed
            vocabulary.

    Raises:
        ConfigError: if `folder` exists, blocks or ids cannot be kept, or `counts` is missing where
            the vocabulary is narrowed.
        StoreError: if it cannot be written.
    """
    arch, _ = read_architecture(model.folder)
    layers = kept_layers(shape, arch.num_layers)
    vocabulary = None
    if shape.vocab_size is not None:
        if counts is None:
            raise ConfigError(
                f"vocab_size={shape.vocab_size} keeps the ids that training responses use most, "
                "but none were counted: make the data first"
            )
        vocabulary = frequent_vocabulary(counts, shape.vocab_size, model)
    if folder.exists():
        raise ConfigError(f"{folder} exists: give a folder that does not")
    pruned = PrunedCheckpoint(
        source=model.reference,
        source_identity=model.identity,
        layers=layers,
        num_ids=None if vocabulary is None else len(vocabulary),
    )
    parent = folder.parent
    parent.mkdir(parents=True, exist_ok=True)
    with (
        writing(folder),
        tempfile.TemporaryDirectory(dir=parent, prefix=f".{folder.name}-") as temporary,
    ):
        written = Path(temporary) / "draft"
        write_sparse(model.folder, _without(layers, arch.num_layers), written)
        if vocabulary is not None:
            write_vocabulary(written, vocabulary)
        (written / PRUNED_FILE).write_text(pruned.model_dump_json(indent=1) + "\n")
        written.replace(folder)
    return pruned


def _without(layers: Sequence[int], num_layers: int) -> SkipConfig:
    """Return the skip set that leaves `layers`."""
    gone = sorted(set(range(num_layers)) - set(layers))
    return SkipConfig.of(SkipUnit(layer) for layer in gone)


def _template_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids that a chat template writes around messages; none without a template."""
    if tokenizer.chat_template is None:
        return set()
    for messages in (_CONVERSATION, _CONVERSATION[1:]):  # some templates know no system message
        try:
            text = chat_text(tokenizer, messages)
        except Exception:  # noqa: BLE001 - a template raises whatever its author chose
            continue
        return set(tokenizer(text, add_special_tokens=False)["input_ids"])
    return set()

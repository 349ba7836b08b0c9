"""A narrowed vocabulary beside a draft's checkpoint: which rows of its head drafting computes.

The checkpoint itself is whole, so that every program that knows nothing of the map loads it. The
map is one of the files that make a checkpoint's identity.

Source: FR-Spec (Zhao et al. 2025): the head's matrix is cut to frequent ids while drafting only.
"""

from __future__ import annotations

import json
from pathlib import Path

from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.files import write_whole

VOCABULARY_FILE = "draft_vocab.json"


def write_vocabulary(folder: Path, vocabulary: DraftVocabulary) -> None:
    """Write `vocabulary` into the folder of a checkpoint."""
    document = {"target_ids": vocabulary.target_ids.tolist()}
    write_whole(folder / VOCABULARY_FILE, json.dumps(document) + "\n")


def read_vocabulary(folder: Path, vocab_size: int) -> DraftVocabulary | None:
    """Return the narrowed vocabulary of the checkpoint in `folder`; None where it is whole.

    Args:
        folder: Of the checkpoint.
        vocab_size: Rows of its head.

    Raises:
        ConfigError: if the file cannot be read, or names ids that the head has no row for.
    """
    path = folder / VOCABULARY_FILE
    if not path.exists():
        return None
    try:
        vocabulary = DraftVocabulary(json.loads(path.read_text())["target_ids"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ConfigError(
            f"{path} is no map of a narrowed vocabulary ({error}): export the draft anew, or "
            "remove the file to draft with the whole head"
        ) from error
    vocabulary.check_fits(vocab_size)
    return vocabulary

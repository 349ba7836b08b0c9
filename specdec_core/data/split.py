"""Divide a suite into items that choose a configuration and items that judge it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from specdec_core.data.records import Suite
from specdec_core.errors import DataError
from specdec_core.randomness import shuffling_generator

MIN_HELDOUT = 2


@dataclass(frozen=True, slots=True)
class Split:
    """Ids of both parts in the order drawn, and how many items of the suite were left out."""

    selection_ids: tuple[str, ...]
    heldout_ids: tuple[str, ...]
    num_unscored: int
    seed: int


def split(suite: Suite, num_selection: int, num_heldout: int, *, seed: int = 42) -> Split:
    """Draw selection and held-out items that share none.

    Items are sorted by id and shuffled by a generator of `seed`; the first `num_selection` are
    the selection, the next ones, up to `num_heldout`, are held out. Where the suite has a
    metric, only items that can be scored take part.

    Args:
        suite: The items to divide.
        num_selection: Selection items, at least 1.
        num_heldout: Held-out items at most, at least 2; fewer where the suite ends.
        seed: Seed of the shuffle.

    Raises:
        DataError: if the suite has fewer than `num_selection` + 2 usable items, or a number is
            too small.

    Source: TSS (seed 42, 16 and 64 items); the drawing rule is ours, the paper gives none.
    """
    if num_selection < 1 or num_heldout < MIN_HELDOUT:
        raise DataError(
            f"split into {num_selection} selection and {num_heldout} held-out items: needs at "
            f"least 1 and {MIN_HELDOUT}"
        )
    usable = suite.items if suite.metric is None else suite.scored_items
    num_unscored = len(suite.items) - len(usable)
    if len(usable) < num_selection + MIN_HELDOUT:
        without = f" ({num_unscored} more have no reference)" if num_unscored else ""
        raise DataError(
            f"suite {suite.name!r} has {len(usable)} usable items{without}, but {num_selection} "
            f"selection items and at least {MIN_HELDOUT} held-out items are needed: ask for fewer "
            "selection items or give a larger suite"
        )
    ids = sorted(item.id for item in usable)
    indices = list(range(len(ids)))
    shuffling_generator(seed).shuffle(indices)
    drawn = tuple(ids[index] for index in indices[: num_selection + num_heldout])
    return Split(drawn[:num_selection], drawn[num_selection:], num_unscored, seed)


def sample_ids(suite: Suite, num_items: int) -> tuple[str, ...]:
    """Return the ids of `num_items` items drawn without regard to their order in the suite.

    Ids are sorted by their SHA-256, so that a larger draw holds every smaller one and neighbours
    of one category do not come together.

    Raises:
        DataError: if the suite has fewer items.
    """
    if num_items > len(suite.items):
        raise DataError(
            f"suite {suite.name!r} has {len(suite.items)} items, {num_items} were asked for: lower "
            "num_items or give a larger suite"
        )
    ids = sorted((item.id for item in suite.items), key=_digest)
    return tuple(ids[:num_items])


def _digest(item_id: str) -> str:
    return hashlib.sha256(item_id.encode()).hexdigest()

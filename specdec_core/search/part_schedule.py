"""Which part of which skip set is evaluated next, where evaluations are cut into parts."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_core.skip import SkipConfig

Part = tuple[SkipConfig, int]
"""A skip set and the 0-based number of one of its parts."""


class PartSchedule:
    """Hands out parts in order, each once; knows nothing of what they contain.

    The dense target comes first, with all its parts, as nothing can be compared before it is
    known. Otherwise the set with the fewest parts under way is next, the earlier of equals: one
    worker finishes a set, or drops it, before it begins the next; several work on different ones.

    Args:
        num_parts: Parts of every set.
    """

    def __init__(self, num_parts: int) -> None:
        self._num_parts = num_parts
        self._begun: dict[SkipConfig, int] = {}
        self._ended: dict[SkipConfig, int] = {}

    @property
    def num_under_way(self) -> int:
        """Parts that were begun and have not ended."""
        return sum(self._begun.values()) - sum(self._ended.values())

    def next(self, pending: Iterable[SkipConfig]) -> SkipConfig | None:
        """Return the set whose next part comes next; None where all parts are begun."""
        open_sets = [skip for skip in pending if self.has_more(skip)]
        dense = next((skip for skip in open_sets if not skip.units), None)
        return dense if dense is not None else min(open_sets, key=self._under_way, default=None)

    def has_more(self, skip: SkipConfig) -> bool:
        """Return whether some part of a set has not begun."""
        return self._begun.get(skip, 0) < self._num_parts

    def begin(self, skip: SkipConfig) -> Part:
        """Note that the next part of a set begins, and return it."""
        number = self._begun.get(skip, 0)
        self._begun[skip] = number + 1
        return skip, number

    def end(self, part: Part) -> bool:
        """Note that a part has ended; return whether it was the last of its set."""
        skip, _ = part
        self._ended[skip] = self._ended.get(skip, 0) + 1
        return self._ended[skip] == self._num_parts

    def num_begun(self, skip: SkipConfig) -> int:
        """Return how many parts of a set have begun."""
        return self._begun.get(skip, 0)

    def _under_way(self, skip: SkipConfig) -> int:
        return self._begun.get(skip, 0) - self._ended.get(skip, 0)

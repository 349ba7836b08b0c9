"""What most often follows the end of a context in a fixed text, for every length of that end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from specdec_core.retrieval.indexed_text import SEPARATOR, IndexedText

_MAX_OCCURRENCES = 20_000
_MAX_PER_KEY = 20
_MEMO_SIZE = 65_536


class FrequentNgrams:
    """Continuations of one length, the most frequent first, counted when they are first asked for.

    Source: Self-Draft, the corpus pool, which holds the same counts in tables made beforehand.

    Args:
        text: Text to count in.
        num_tokens: Length of every continuation.
        longest_key: Most tokens of the context that a continuation must follow.
        min_count: Times a continuation must occur after them; after keys with more than 20,000
            occurrences, among as many spread evenly over the sorted continuations.
    """

    def __init__(
        self, text: IndexedText, *, num_tokens: int, longest_key: int, min_count: int
    ) -> None:
        self._text = text
        self._num_tokens = num_tokens
        self._longest_key = longest_key
        self._min_count = min_count
        self._lookup = lru_cache(maxsize=_MEMO_SIZE)(self._count)

    def after(self, context: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield continuations of the end of `context`: of its longest part first, by frequency.

        At most 20 per length; those of equal count in lexicographic order. What follows a longer
        part may come again for a shorter one.
        """
        for length in range(min(self._longest_key, len(context)), 0, -1):
            yield from self._lookup(tuple(context[-length:]))

    def _count(self, key: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return what follows `key` often enough, the most frequent first."""
        found = self._text.find(key)
        if found is None:
            return ()
        step = -(-found.num // _MAX_OCCURRENCES)
        suffixes = self._text.suffixes[found.first : found.first + found.num : step]
        starts = suffixes.astype(np.int64) + found.length
        starts = starts[starts + self._num_tokens <= len(self._text)]
        rows = self._text.tokens[starts[:, None] + np.arange(self._num_tokens)]
        rows = rows[(rows != SEPARATOR).all(axis=1)].astype(np.int64)
        if not len(rows):
            return ()
        # The suffixes are sorted, so equal rows are neighbours.
        is_first = np.ones(len(rows), np.bool_)
        is_first[1:] = (rows[1:] != rows[:-1]).any(axis=1)
        begins = np.flatnonzero(is_first)
        counts = np.diff(begins, append=len(rows))
        order = np.argsort(-counts, kind="stable")[:_MAX_PER_KEY]
        order = order[counts[order] >= self._min_count]
        return tuple(tuple(row) for row in rows[begins[order]].tolist())

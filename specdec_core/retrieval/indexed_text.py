"""A fixed text with all its suffixes sorted: where the end of a context occurs in it."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specdec_core.errors import ConfigError
from specdec_core.retrieval.suffix_array import build_suffix_array

SEPARATOR = 2**32 - 1  # behind every document; larger than any token id, so documents sort first
TOKEN_DTYPE = ">u4"  # big-endian bytes compare as the tokens do
SUFFIX_DTYPE = "=u4"
_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Where a string of tokens occurs.

    Attributes:
        length: Tokens of the string.
        first: First of its suffixes in lexicographic order.
        num: Occurrences, at least 1.
    """

    length: int
    first: int
    num: int


class IndexedText:
    """Documents, one behind the other, each followed by a separator.

    Matches and continuations never reach across a separator. The arrays may be memory-mapped: a
    query touches a few pages.

    Args:
        tokens: Token ids and separators, dtype `TOKEN_DTYPE`, length n.
        suffixes: Starts of all suffixes in lexicographic order, dtype `SUFFIX_DTYPE`, length n.
    """

    def __init__(self, tokens: npt.NDArray[np.uint32], suffixes: npt.NDArray[np.uint32]) -> None:
        self.tokens, self.suffixes = tokens, suffixes
        self._bytes = tokens.view(np.uint8).data
        self._starts = suffixes.data

    def __len__(self) -> int:
        """Return the number of tokens, separators included."""
        return len(self.tokens)

    def find(self, string: Sequence[int]) -> Occurrences | None:
        """Return where `string`, one token or more, occurs; None for nowhere. O(log n)."""
        wanted = struct.pack(f">{len(string)}I", *string)
        size, text, starts = len(wanted), self._bytes, self._starts

        def beginning(index: int) -> bytes:
            place = starts[index] * _TOKEN_BYTES
            return bytes(text[place : place + size])

        every = range(len(starts))
        first = bisect_left(every, wanted, key=beginning)
        if first == len(starts) or beginning(first) != wanted:
            return None
        end = bisect_right(every, wanted, lo=first, key=beginning)
        return Occurrences(len(string), first, end - first)

    def find_suffix(
        self, context: Sequence[int], *, shortest: int, longest: int
    ) -> Occurrences | None:
        """Return where the longest suffix of `context` that occurs at all occurs.

        Args:
            context: Token ids.
            shortest: Shorter suffixes are not looked for, at least 1.
            longest: Longer suffixes are cut to this.
        """
        longest = min(longest, len(context))
        found: dict[int, Occurrences | None] = {}

        def is_missing(length: int) -> bool:
            if length not in found:
                found[length] = self.find(context[-length:])
            return found[length] is None

        # Most matches are short: double the length until one is missing, then halve the interval.
        upper = shortest
        while upper < longest and not is_missing(upper):
            upper *= 2
        lengths = range(shortest, min(upper, longest) + 1)
        num = bisect_left(lengths, True, key=is_missing)
        return found[lengths[num - 1]] if num else None


def index_documents(documents: Iterable[Sequence[int]]) -> IndexedText:
    """Return the text of `documents`; empty ones are left out.

    Raises:
        ConfigError: if no tokens are left or too many, or an id is outside 0 to 2^32 - 2.
    """
    parts = [np.asarray(document, np.int64) for document in documents if len(document)]
    ids = np.concatenate([*parts, np.empty(0, np.int64)])
    is_valid = len(ids) > 0 and ids.min() >= 0 and ids.max() < SEPARATOR
    if not is_valid or len(ids) + len(parts) >= SEPARATOR:
        raise ConfigError(
            f"{len(parts)} documents with {len(ids)} tokens cannot be indexed: give at least one "
            "token and fewer than 2^32, with ids from 0 to 2^32 - 2"
        )
    end = np.array([SEPARATOR])
    tokens = np.concatenate([piece for part in parts for piece in (part, end)]).astype(np.uint32)
    return IndexedText(tokens.astype(TOKEN_DTYPE), build_suffix_array(tokens))

"""A suffix automaton over a growing text: the longest earlier match of its end, in O(1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """The longest suffix of a context that occurs in the text.

    Attributes:
        length: Tokens of the suffix; 0 where not even the last token occurs.
        end: Tokens of the text up to the end of its first occurrence; the continuation begins at
            this index.
        state: State of the automaton that stands for it.
    """

    length: int
    end: int
    state: int


class Automaton:
    """The substrings of a text, each with the end of its first occurrence.

    A state stands for all substrings that occur at the same places: `_length` is the longest of
    them, `_link` the state of the longest suffix that occurs at more places, and `_end` where the
    first occurrence ends. State 0 is the empty string. Feeding takes O(1) amortised per token.

    Source: the online construction of Blumer et al. 1985 as used in SAM-Decoding, section 3.1. The
    paper carries a matching state from token to token; the suffix link of the newest state is that
    state, so nothing has to be carried.
    """

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = []
        self._link: list[int] = []
        self._length: list[int] = []
        self._end: list[int] = []
        self.clear()

    def clear(self) -> None:
        """Forget the text."""
        self._next[:], self._link[:], self._length[:], self._end[:] = [{}], [-1], [0], [0]
        self._last = 0

    def __len__(self) -> int:
        """Return the number of tokens fed."""
        return self._length[self._last]

    @property
    def num_states(self) -> int:
        """Number of states, that of the empty string included; at most two per token."""
        return len(self._next)

    @property
    def repeat_length(self) -> int:
        """Tokens of the longest suffix of the text that also occurs earlier in it."""
        return self._length[self._link[self._last]] if self._last else 0

    def feed(self, tokens: Iterable[int]) -> None:
        """Append `tokens` to the text."""
        for token in tokens:
            self._extend(token)

    def match(self, token: int) -> Match:
        """Return the longest suffix of the text and `token` that occurs in the text."""
        # What ends with `token` inside the text goes on from a suffix that occurs earlier.
        state = self._link[self._last] if self._last else 0
        while state and token not in self._next[state]:
            state = self._link[state]
        found = self._next[state].get(token)
        if found is None:
            return Match(0, 0, 0)
        return Match(self._length[state] + 1, self._end[found], found)

    def widen(self, match: Match, num_tokens: int) -> Match:
        """Return the longest suffix of `match` that has `num_tokens` after its first occurrence.

        Only suffixes that occur at more places than `match` come into question; where none has as
        many tokens after it, the shortest of them is returned.
        """
        state = match.state
        while self._link[state] > 0 and len(self) - self._end[state] < num_tokens:
            state = self._link[state]
        if state == match.state:
            return match
        return Match(self._length[state], self._end[state], state)

    def _extend(self, token: int) -> None:
        new = self._add(len(self) + 1, len(self) + 1, {}, 0)
        state = self._last
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state >= 0:
            self._link[new] = self._state_after(state, token)
        self._last = new

    def _state_after(self, state: int, token: int) -> int:
        """Return the state of the longest string of `state` and `token`; split one if needed."""
        found = self._next[state][token]
        length = self._length[state] + 1
        if self._length[found] == length:
            return found
        clone = self._add(length, self._end[found], dict(self._next[found]), self._link[found])
        self._link[found] = clone
        while state >= 0 and self._next[state].get(token) == found:
            self._next[state][token] = clone
            state = self._link[state]
        return clone

    def _add(self, length: int, end: int, following: dict[int, int], link: int) -> int:
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        self._end.append(end)
        return len(self._next) - 1

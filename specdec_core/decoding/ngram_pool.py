"""N-grams kept for the token in front of them, most recently seen first."""

from __future__ import annotations

from collections.abc import Sequence


class NgramPool:
    """For each token the continuations of one length that were seen after it.

    A continuation seen again counts as new; beyond `max_per_token` the one not seen for longest
    is dropped.

    Source: Lookahead Decoding, the n-gram pool.

    Args:
        num_tokens: Length of every continuation, at least 1.
        max_per_token: Continuations kept per token, at least 1.
    """

    def __init__(self, num_tokens: int, max_per_token: int) -> None:
        self._num_tokens = num_tokens
        self._max_per_token = max_per_token
        # Dictionaries remember the order of insertion: oldest first.
        self._seen: dict[int, dict[tuple[int, ...], None]] = {}
        self._recent: tuple[int, ...] = ()

    @property
    def recent(self) -> tuple[int, ...]:
        """Last tokens of the text so far, at most as many as a continuation has."""
        return self._recent

    def newest_first(self, token: int) -> tuple[tuple[int, ...], ...]:
        """Return the continuations of `token`, the one seen last in front."""
        return tuple(reversed(self._seen.get(token, {})))

    def add(self, token: int, continuation: tuple[int, ...]) -> None:
        """Enter one continuation, or mark it as just seen."""
        seen = self._seen.setdefault(token, {})
        seen.pop(continuation, None)
        seen[continuation] = None
        if len(seen) > self._max_per_token:
            del seen[next(iter(seen))]

    def begin_text(self, text: Sequence[int]) -> None:
        """Enter the continuations in a text that has nothing to do with the last one."""
        self._recent = ()
        self.extend_text(text)

    def extend_text(self, tokens: Sequence[int]) -> None:
        """Enter the continuations that end in `tokens`, which follow the text so far."""
        text = (*self._recent, *tokens)
        for start in range(len(text) - self._num_tokens):
            self.add(text[start], text[start + 1 : start + 1 + self._num_tokens])
        self._recent = text[-self._num_tokens :]

    def add_path(self, path: Sequence[int], best: Sequence[int]) -> None:
        """Enter the continuations in a drafted path, each ended by the target's own token.

        Args:
            path: Drafted tokens.
            best: Token the target ranks first after each of them, given those before it.
        """
        for end in range(self._num_tokens - 1, len(path)):
            start = end - self._num_tokens + 1
            self.add(path[start], (*path[start + 1 : end + 1], best[end]))

    def keep_newest(self, num: int) -> None:
        """Drop all but the `num` continuations seen last after each token."""
        for seen in self._seen.values():
            for old in list(seen)[:-num]:
                del seen[old]

    def clear(self) -> None:
        """Forget everything."""
        self._seen.clear()
        self._recent = ()

"""What followed the n-grams of a text, and how often such followers turned out right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# Why a token is a candidate: tokens of context that agree, and its rank among their followers.
Evidence = tuple[int, int]

_PRIOR_TRIALS = 8.0


class FollowerTable:
    """For every n-gram of a growing text the distinct tokens that followed it, the last first.

    Args:
        max_ngram: Longest n-gram, tokens.
        max_followers: Followers kept per n-gram; the one not seen for longest is dropped.
    """

    def __init__(self, max_ngram: int, max_followers: int) -> None:
        self._max_ngram = max_ngram
        self._max_followers = max_followers
        self._followers: dict[tuple[int, ...], list[int]] = {}
        self._tail: tuple[int, ...] = ()

    @property
    def tail(self) -> tuple[int, ...]:
        """Last tokens of the text, as many as the longest n-gram has."""
        return self._tail

    def clear(self) -> None:
        """Forget the text."""
        self._followers.clear()
        self._tail = ()

    def append(self, token: int) -> None:
        """Continue the text: `token` becomes the latest follower of every n-gram it ends."""
        for start in range(len(self._tail)):
            followers = self._followers.setdefault(self._tail[start:], [])
            if token in followers:
                followers.remove(token)
            followers.insert(0, token)
            del followers[self._max_followers :]
        self._tail = self.extend(self._tail, token)

    def extend(self, context: tuple[int, ...], token: int) -> tuple[int, ...]:
        """Return the tail of a text that goes on from `context` with `token`."""
        return (*context, token)[-self._max_ngram :]

    def search(self, context: tuple[int, ...]) -> Iterator[tuple[int, Evidence]]:
        """Yield what followed the suffixes of `context`, longest first, with the evidence."""
        for start in range(len(context)):
            for rank, token in enumerate(self._followers.get(context[start:], ())):
                yield token, (len(context) - start, rank)


class Chances:
    """How likely a candidate is right given its evidence, learned from what came.

    Before anything is known, n agreeing tokens and rank r are worth ``(n + 1) / (n + 3)`` over
    ``(r + 1) ** 2``; that guess counts as much as eight observations.
    """

    def __init__(self) -> None:
        self._right: dict[Evidence, int] = {}
        self._seen: dict[Evidence, int] = {}

    def clear(self) -> None:
        """Forget what was observed."""
        self._right.clear()
        self._seen.clear()

    def record(self, candidates: Sequence[tuple[int, Evidence]], token: int) -> None:
        """Learn that of these candidates `token`, or none, was right."""
        for candidate, evidence in candidates:
            self._seen[evidence] = self._seen.get(evidence, 0) + 1
            if candidate == token:
                self._right[evidence] = self._right.get(evidence, 0) + 1

    def estimate(self, evidence: Evidence) -> float:
        """Return the chance, between 0 and 1, that a candidate with this evidence is right."""
        size, rank = evidence
        guess = (size + 1) / (size + 3) / (rank + 1) ** 2
        right = self._right.get(evidence, 0) + _PRIOR_TRIALS * guess
        return right / (self._seen.get(evidence, 0) + _PRIOR_TRIALS)

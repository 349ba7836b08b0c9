"""Text of an output while its tokens come: whole characters only, cut at stop strings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

Decode = Callable[[Sequence[int]], str]

_INCOMPLETE = "\ufffd"  # what tokenizers write for bytes that are no character (yet)
_MAX_PENDING = 8  # tokens; a character has at most 4 bytes, so beyond it they are none


class OutputText:
    """Turns tokens into text that is never taken back.

    The text is a function of the tokens alone, however they are grouped: tokens are decoded one
    by one with those just before them, so that streamed and whole texts are the same. Characters
    are held back until all their bytes are there, and what could become a stop string until it is
    told.

    Args:
        decode: Text of token ids, special tokens left out.
        stop_strings: Texts that end the output; the earliest in the text counts.
        eos_ids: Tokens that write nothing.
        skips_opening_space: Whether stop strings inside white space at the very beginning do not
            count; models open their answer with a space or a line break.
    """

    def __init__(
        self,
        decode: Decode,
        *,
        stop_strings: Sequence[str] = (),
        eos_ids: Collection[int] = (),
        skips_opening_space: bool = False,
    ) -> None:
        self._decode, self._eos_ids = decode, frozenset(eos_ids)
        self._stops = tuple(filter(None, stop_strings))
        self._skips_opening_space = skips_opening_space
        self._ids: list[int] = []
        self._window = self._settled = 0  # ids decoded together again, and those already text
        self._text = ""
        self._stop_at: int | None = None
        self._num_seen = self._num_committed = self._num_taken = 0

    @property
    def text(self) -> str:
        """The text so far, what may still become a stop string included."""
        return self._text[: self._stop_at]

    def stop_check(self, output: Sequence[int]) -> int | None:
        """Return how many tokens of `output` complete a stop string, or None; see `StopRules`."""
        for token in output[self._num_seen :]:
            if self._stop_at is None:
                self._push(token)
        return None if self._stop_at is None else self._num_seen

    def commit(self, tokens: Sequence[int]) -> str:
        """Add tokens of the output and return the text that is certain now and was not before."""
        new = tokens[max(0, self._num_seen - self._num_committed) :]
        self._num_committed += len(tokens)
        for token in new:
            self._push(token)
        return self._take(len(self.text) - self._num_held())

    def finish(self) -> str:
        """Return the rest of the text: nothing comes any more."""
        if self._stop_at is None:
            self._settle(self._pending())
        return self._take(len(self.text))

    def _push(self, token: int) -> None:
        self._num_seen += 1
        if token in self._eos_ids or self._stop_at is not None:
            return
        self._ids.append(token)
        piece = self._pending()
        is_whole = piece and not piece.endswith(_INCOMPLETE)
        if is_whole or len(self._ids) - self._settled > _MAX_PENDING:
            self._settle(piece)

    def _pending(self) -> str:
        """Return the text of the tokens that are none yet, read behind those before them."""
        known = self._decode(self._ids[self._window : self._settled])
        return self._decode(self._ids[self._window :])[len(known) :]

    def _settle(self, piece: str) -> None:
        self._window, self._settled = self._settled, len(self._ids)
        longest = max(map(len, self._stops), default=0)
        start = max(0, len(self._text) - longest + 1)
        self._text += piece
        if self._skips_opening_space:
            start = max(start, len(self._text) - len(self._text.lstrip()))
        found = [self._text.find(stop, start) for stop in self._stops]
        self._stop_at = min((index for index in found if index >= 0), default=None)

    def _num_held(self) -> int:
        """Return how many characters at the end could be the beginning of a stop string."""
        if self._stop_at is not None:
            return 0
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(self._text)), 0, -1):
            if any(stop.startswith(self._text[-size:]) for stop in self._stops):
                return size
        return 0

    def _take(self, end: int) -> str:
        start, self._num_taken = self._num_taken, max(end, self._num_taken)
        return self._text[start : self._num_taken]

"""What a release sees of the forward that holds the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from specdec_core.decoding.ranking import top_rows
from specdec_core.models.prefix import PrefixCache
from specdec_core.models.view import TargetView
from specdec_core.tree.token_tree import TokenTree

_CHUNK = 256
PrefixOf = Callable[[Sequence[int]], PrefixCache | None]


class PromptPass:
    """Runs prompts once more, for what the decode loop does not show of them.

    Args:
        view: The target.
        prefix_of: Returns rows of a prompt's beginning, without its last two tokens, where they
            are known.
    """

    def __init__(self, view: TargetView, prefix_of: PrefixOf = lambda _: None) -> None:
        self._view, self._prefix_of = view, prefix_of

    def rankings_behind(
        self, prompt: Sequence[int], tree: TokenTree, top_k: int
    ) -> list[list[int]]:
        """Return the `top_k` ids ranked best after every node of a tree, root included.

        Args:
            prompt: At least one token.
            tree: Its root is the last token of the prompt.
            top_k: Ids per node.
        """
        with torch.inference_mode():
            cache = self._view.new_cache(1, len(prompt) + len(tree))
            if len(prompt) > 1:
                self._view.prefill([prompt[:-1]], cache, self._prefix_of(prompt))
            return top_rows(self._view.forward([tree], cache)[0], top_k).ids

    def rankings(self, prompt: Sequence[int], top_k: int) -> list[list[int]]:
        """Return the `top_k` ids ranked best after every token of the prompt."""
        found: list[list[int]] = []
        with torch.inference_mode():
            cache = self._view.new_cache(1, len(prompt))
            for start in range(0, len(prompt), _CHUNK):
                chunk = prompt[start : start + _CHUNK]
                logits = self._view.forward([TokenTree.chain(chunk[0], chunk[1:])], cache)[0]
                found += top_rows(logits[: len(chunk)], top_k).ids
                cache.commit([range(len(chunk))])
        return found

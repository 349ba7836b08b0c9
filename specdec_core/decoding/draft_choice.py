"""Which tokens a draft's logits propose: the most likely ones, or drawn ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec_core.config.sampling import Sampling
from specdec_core.config.tree_options import DraftChoice
from specdec_core.decoding.ranking import first_argmax, top_rows
from specdec_core.decoding.sampling import (
    draw_children,
    fit_vocabulary,
    perturb,
    probabilities,
    process_logits,
)
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.randomness import Noise


@dataclass(frozen=True, slots=True)
class Children:
    """Tokens proposed after one node.

    Attributes:
        tokens: Distinct tokens, best or first drawn in front.
        log_probs: How likely each is to the draft, at most 0; zeros where nobody asked.
        distribution: What they were drawn from, [V]; None where they were chosen.
    """

    tokens: Sequence[int]
    log_probs: Sequence[float]
    distribution: torch.Tensor | None = None  # [V]


class ChildChooser:
    """Chooses children from rows of draft logits, processed as the target's are.

    ``greedy`` takes the most likely tokens. ``sample`` draws them one after the other without
    replacement, with noise of their own. ``coupled`` takes the largest sums of logit and noise,
    with the noise that the target's own draw will use: the same tokens where draft and target
    agree, and point masses to whoever knows the noise. A greedy target is drafted for greedily.

    Args:
        choice: One of these.
        sampling: How the target's logits become tokens.
        vocab_size: The target's V; other ids are never proposed.
        vocabulary: The target's ids of the draft's columns, where it is narrowed; ids without one
            are never proposed, and have probability 0 in what is drawn from.

    Raises:
        ConfigError: if `vocabulary` has ids that the target lacks.

    Source: Leviathan et al. 2023, section 2.3, for draws; Gumbel coupling as in Daliri et al.
    2025, Coupling without communication and drafter-invariant speculative decoding.
    """

    def __init__(
        self,
        choice: DraftChoice,
        sampling: Sampling,
        vocab_size: int,
        vocabulary: DraftVocabulary | None = None,
    ) -> None:
        if vocabulary is not None:
            vocabulary.check_fits(vocab_size)
        self._vocabulary = vocabulary
        self._target_ids = vocabulary.target_ids.tolist() if vocabulary is not None else None
        self._choice = "greedy" if sampling.is_greedy else choice
        self._sampling = sampling
        self._vocab_size = vocab_size
        self._is_plain = sampling.is_greedy and not sampling.has_penalties
        self._num_prompt = 0
        self._noise = Noise(sampling.seed)

    @property
    def is_drawing(self) -> bool:
        """Whether children are draws, so that none may be dropped for what it is."""
        return self._choice == "sample"

    def reset(self, prompt: Sequence[int], seed: int) -> None:
        """Begin a request."""
        self._num_prompt = len(prompt)
        self._noise = Noise(self._sampling.seed, seed)

    @torch.inference_mode()
    def choose(
        self,
        logits: torch.Tensor,
        sequence: Sequence[int],
        paths: Sequence[Sequence[int]],
        nums: Sequence[int],
        *,
        with_scores: bool = True,
    ) -> list[Children]:
        """Return the children of R nodes.

        Args:
            logits: [R, V'] the draft's rows after the nodes; [R, V_d] of a narrowed draft.
            sequence: Prompt and output.
            paths: Drafted tokens from behind the sequence to each node, itself included.
            nums: Most children of each node, at least 1.
            with_scores: Whether log-probabilities are wanted.
        """
        if self._is_plain:
            rows = logits[:, : self._vocab_size]
            return self._named(self._most_likely(rows, nums, with_scores=with_scores))
        return [self._choose_one(*each, sequence) for each in zip(logits, paths, nums, strict=True)]

    def _most_likely(
        self, rows: torch.Tensor, nums: Sequence[int], *, with_scores: bool
    ) -> list[Children]:
        if not with_scores and max(nums) == 1:
            return [Children([token], [0.0]) for token in first_argmax(rows).tolist()]
        found = top_rows(rows, max(nums)).ids
        wide = rows if rows.dtype == torch.float64 else rows.float()
        values = wide.gather(1, torch.tensor(found, device=rows.device))
        log_probs = (values - wide.logsumexp(-1, keepdim=True)).tolist()
        return [
            Children(ids[:num], scores[:num])
            for ids, scores, num in zip(found, log_probs, nums, strict=True)
        ]

    def _named(self, chosen: list[Children]) -> list[Children]:
        """Return children with the target's ids in place of a narrowed draft's."""
        ids = self._target_ids
        if ids is None:
            return chosen
        return [Children([ids[token] for token in each.tokens], each.log_probs) for each in chosen]

    def _choose_one(
        self, row: torch.Tensor, path: Sequence[int], num: int, sequence: Sequence[int]
    ) -> Children:
        history = [*sequence, *path]
        fitted = self._fit(row)
        processed = process_logits(fitted, self._sampling, history, self._num_prompt)
        if self._choice == "sample":
            return self._draw(processed, path, num, len(sequence))
        if self._choice == "coupled":
            ids, scores = perturb(processed, self._noise, "sample", len(history))
            (found,) = self._most_likely(scores[None], [num], with_scores=True)
            return Children(ids[list(found.tokens)].tolist(), found.log_probs)
        (found,) = self._most_likely(processed[None], [num], with_scores=True)
        num = sum(score > -torch.inf for score in found.log_probs)
        return Children(found.tokens[:num], found.log_probs[:num])

    def _fit(self, row: torch.Tensor) -> torch.Tensor:
        """Return a draft's row over the target's ids, [V]."""
        if self._vocabulary is None:
            return fit_vocabulary(row, self._vocab_size)
        return self._vocabulary.scatter(row, self._vocab_size)

    def _draw(self, processed: torch.Tensor, path: Sequence[int], num: int, root: int) -> Children:
        """Draw from the distribution as it is handed on, down to what rounds to nothing."""
        distribution = probabilities(processed).to(processed.dtype)
        possible = processed.masked_fill(distribution == 0, -torch.inf)
        purpose = "/".join(map(str, ("draft", *path)))
        tokens = draw_children(possible, num, self._noise, purpose, root)
        return Children(tokens, distribution[tokens].log().tolist(), distribution)

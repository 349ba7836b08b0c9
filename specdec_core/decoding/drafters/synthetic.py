"""A drafter with prescribed acceptance, for testing statistics and measuring cost."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.model_drafters import Synthetic
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.draft_session import DraftCache, DraftSession
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.drafters.none import NothingDrafter
from specdec_core.decoding.loop import generate
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.randomness import Noise
from specdec_core.skip import SkipConfig


@register(Synthetic)
class SyntheticDrafter:
    """Drafts what the target will write, and something else as often as prescribed.

    `reset` decodes the target's own continuation plainly and with the request's seed, so that
    drafting is free. Behind the horizon, and where rounding made the output leave the known
    continuation, the target writes its own draft on its own cache, which costs draft time but
    keeps the acceptance. Under sampling this holds for sample-then-match; rules that draw
    otherwise accept less. A wrong token does not end a chain, so that its cost is that of all
    positions.
    """

    def __init__(self, config: Synthetic, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        self._acceptance = config.acceptance
        self._horizon = config.horizon
        self._context = context
        self._view = context.require_view(config.method)
        self._writer = DraftWriter(
            DraftSession(self._view.sparser(SkipConfig())),
            Growth.chain(len(config.acceptance)),
            "coupled",
            sampling=context.sampling,
            vocab_size=self._view.vocab_size,
            eos_ids=context.eos_ids,
        )
        self._known: list[int] = []
        self._is_ended = False
        self._noise = Noise(0)

    @staticmethod
    def needs_for(config: Synthetic) -> DrafterNeeds:
        """Ask for room for the chain, and for the target's cache."""
        return DrafterNeeds(max_nodes=len(config.acceptance), shares_cache=True)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request: decode its continuation."""
        self._noise = Noise(self._context.sampling.seed, seed)
        self._writer.reset(prompt, seed)
        self._writer.session.release()
        continuation = self._continuation(prompt, seed)
        self._known = [*prompt, *continuation]
        # A stop token of the prompt ends nothing.
        self._is_ended = bool(continuation) and continuation[-1] in self._context.eos_ids

    def borrow(self, cache: DraftCache) -> None:
        """Take the target's rows of this request until the next `observe`."""
        self._writer.session.borrow(cache)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the chain, right or wrong at every position as drawn for it."""
        start = len(sequence)
        num = min(len(self._acceptance), budget.max_nodes, budget.max_depth)
        following = self._known[start : start + num]
        is_short = len(following) < num and not self._is_ended
        if self._known[:start] != list(sequence) or is_short:
            following = list(self._writer.write(sequence, budget).candidates.tokens[1:])
        chances = zip(self._acceptance, following, strict=False)
        tokens = [
            token if self._noise.uniform("synthetic", start, index) < chance else self._wrong(token)
            for index, (chance, token) in enumerate(chances)
        ]
        return Proposal.chain(sequence[-1], tokens)

    def observe(self, outcome: StepOutcome) -> None:  # noqa: ARG002 - nothing is learned
        """Give the cache back."""
        self._writer.session.release()

    def _continuation(self, prompt: Sequence[int], seed: int) -> Sequence[int]:
        num = min(self._horizon, self._view.max_positions - len(prompt))
        if num < 1:
            return ()
        (plain,) = generate(
            self._view,
            [prompt],
            [NothingDrafter(NoDrafter(), self._context)],
            max_new_tokens=num,
            eos_ids=self._context.eos_ids,
            sampling=self._context.sampling,
            seeds=[seed],
        )
        return plain.token_ids

    def _wrong(self, token: int) -> int:
        return (token + 1) % self._view.vocab_size

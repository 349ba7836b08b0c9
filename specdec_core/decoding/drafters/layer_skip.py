"""Self-speculation by layer skipping: the target without some layers writes a chain for itself."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.model_drafters import LayerSkip
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.draft_session import DraftCache
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.skip import SkipConfig


@register(LayerSkip)
class LayerSkipDrafter:
    """Drafts with a sparse view that reads the whole target's cache.

    Prompt and committed tokens are seen as the target computed them, in the layers that are
    left; the draft's own rows are written behind them and dropped before verification. A target
    that is sparse itself is skipped further.

    Source: Draft & Verify (Zhang et al. 2023), section 3.1.
    """

    def __init__(self, config: LayerSkip, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        view = context.require_view(config.method).sparser(SkipConfig.parse(config.skip))
        growth = Growth.chain(config.gamma, config.min_confidence)
        self._writer = DraftWriter.of(view, growth, config, context)

    @staticmethod
    def needs_for(config: LayerSkip) -> DrafterNeeds:
        """Ask for room for the chain, and for the target's cache."""
        return DrafterNeeds(max_nodes=config.gamma, shares_cache=True)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request."""
        self._writer.reset(prompt, seed)
        self._writer.session.release()

    def borrow(self, cache: DraftCache) -> None:
        """Take the target's rows of this request until the next `observe`."""
        self._writer.session.borrow(cache)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the chain.

        Raises:
            CacheDesyncError: if no cache was lent since the last step.
        """
        return self._writer.write(sequence, budget)

    def observe(self, outcome: StepOutcome) -> None:  # noqa: ARG002 - nothing is learned
        """Give the cache back."""
        self._writer.session.release()

"""Sample-then-match: the target chooses as in plain decoding, and drafts are followed or not."""

from __future__ import annotations

import torch

from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.ranking import NO_RIVAL_GAP, first_argmax
from specdec_core.decoding.sampling import perturb
from specdec_core.decoding.verification.rows import TreeRows
from specdec_core.decoding.verification.rule import Verdict, descend
from specdec_core.randomness import Noise


class Match:
    """Draws the target's token after a node and descends where a child carries it.

    The noise depends on the request and the token's position alone, so the output is that of
    plain decoding token for token, whatever is drafted. A child is accepted with the probability
    the target gives it; several children add up. At temperature 0 the most likely token takes the
    place of the draw.

    Args:
        with_margins: Whether to tell by how much tokens won.
    """

    def __init__(self, *, with_margins: bool = False) -> None:
        self._with_margins = with_margins

    def verify(self, proposal: Proposal, rows: TreeRows, noise: Noise) -> Verdict:
        """Return the path that the target's own choices follow."""

        def choose(node: int) -> tuple[int, float | None]:
            processed = rows.processed(node)
            if rows.sampling.is_greedy:
                return int(first_argmax(processed)), self._margin(processed)
            ids, scores = perturb(processed, noise, "sample", rows.position(node))
            return int(ids[scores.argmax()]), self._margin(scores)

        return descend(proposal.candidates, choose)

    def _margin(self, scores: torch.Tensor) -> float | None:
        if not self._with_margins:
            return None
        best = scores.topk(min(2, len(scores))).values.tolist()
        return best[0] - best[1] if len(best) > 1 else NO_RIVAL_GAP

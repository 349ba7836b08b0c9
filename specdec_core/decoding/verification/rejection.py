"""The rule for drawn candidates: chains, and trees with one or more draws per node."""

from __future__ import annotations

from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.sampling import probabilities
from specdec_core.decoding.verification.rounds import chosen_rounds, draw_by_rounds, drawn_rounds
from specdec_core.decoding.verification.rows import TreeRows
from specdec_core.decoding.verification.rule import Verdict, descend
from specdec_core.randomness import Noise


class Rejection:
    """Accepts drawn children with min(1, p/q), in the order they were drawn.

    Every node starts from its own row of the target. Children that were chosen, not drawn, are
    point masses, and for these the rule is that of `Residual`.

    Source: Leviathan et al. 2023, Chen et al. 2023, SpecInfer; see `drawn_rounds`.
    """

    def verify(self, proposal: Proposal, rows: TreeRows, noise: Noise) -> Verdict:
        """Return the path of accepted children and a bonus from what is left.

        Raises:
            ConfigError: if a child cannot come from the distribution it was said to be drawn from.
        """
        tree = proposal.candidates

        def choose(node: int) -> tuple[int, None]:
            target = probabilities(rows.processed(node))
            drawn = proposal.sampled.get(node)
            if drawn is None:
                rounds = chosen_rounds(target, tree.children(node))
            else:
                rounds = drawn_rounds(
                    target,
                    drawn.distribution,
                    [tree.tokens[child] for child in drawn.order],
                    with_replacement=drawn.with_replacement,
                )
            return draw_by_rounds(target, rounds, noise, rows.position(node)), None

        return descend(tree, choose)

"""The rule for chosen candidates that tests children one by one."""

from __future__ import annotations

from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.sampling import probabilities
from specdec_core.decoding.verification.rounds import chosen_rounds, draw_by_rounds
from specdec_core.decoding.verification.rows import TreeRows
from specdec_core.decoding.verification.rule import Verdict, descend
from specdec_core.randomness import Noise


class Residual:
    """Accepts a child with its share of the mass that no earlier child took.

    The law of what is committed is that of sample-then-match, with one random number per child
    instead of one draw per node.

    Source: PTD, algorithm 2, corrected; see `chosen_rounds`.
    """

    def verify(self, proposal: Proposal, rows: TreeRows, noise: Noise) -> Verdict:
        """Return the path of accepted children and a bonus from the rest."""
        tree = proposal.candidates

        def choose(node: int) -> tuple[int, None]:
            target = probabilities(rows.processed(node))
            rounds = chosen_rounds(target, tree.children(node))
            return draw_by_rounds(target, rounds, noise, rows.position(node)), None

        return descend(tree, choose)

"""Typical acceptance: keeps what the target finds likely enough; not lossless."""

from __future__ import annotations

import math

import torch

from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.sampling import draw_token, probabilities
from specdec_core.decoding.verification.rows import TreeRows, path_to
from specdec_core.decoding.verification.rule import Verdict
from specdec_core.randomness import Noise


class Typical:
    """Accepts a token whose probability is above min(epsilon, delta * exp(-entropy)).

    The longest acceptable path wins, of several the one with the largest product of
    probabilities; the bonus is drawn from the target after it. Outputs lean to likely tokens: they
    do not have the target's law.

    Args:
        epsilon: Probability that is always enough.
        delta: Share of exp(-entropy) that is enough; entropy in nats.

    Source: Medusa, typical acceptance; the bonus is drawn instead of the most likely token, as
    outside its fast mode.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self._epsilon = epsilon
        self._delta = delta

    def verify(self, proposal: Proposal, rows: TreeRows, noise: Noise) -> Verdict:
        """Return the longest acceptable path and a draw after it."""
        tree = proposal.candidates
        reached = {0: 0.0}  # node -> sum of log probabilities
        for parent in range(len(tree)):
            children = tree.children(parent)
            if parent not in reached or not children:
                continue
            target = probabilities(rows.processed(parent))
            threshold = self.threshold(target)
            for token, child in children.items():
                chance = float(target[token])
                if chance > threshold:
                    reached[child] = reached[parent] + math.log(chance)
        last = max(reached, key=lambda node: (tree.depths[node], reached[node], -node))
        bonus = draw_token(rows.processed(last), noise, "sample", rows.position(last))
        return Verdict(path_to(tree, last), bonus)

    def threshold(self, target: torch.Tensor) -> float:
        """Return the probability a token must exceed below a row of probabilities [V]."""
        entropy = float(torch.special.entr(target).sum())
        return min(self._epsilon, self._delta * math.exp(-entropy))

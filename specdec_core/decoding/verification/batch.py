"""Verification of a whole batch: greedy in one pass over all rows, other rules per request."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec_core.config.sampling import Sampling
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.ranking import first_argmax
from specdec_core.decoding.sequence import SequenceState
from specdec_core.decoding.verification.match import Match
from specdec_core.decoding.verification.rejection import Rejection
from specdec_core.decoding.verification.residual import Residual
from specdec_core.decoding.verification.rows import TreeRows
from specdec_core.decoding.verification.rule import Verdict, VerificationRule
from specdec_core.decoding.verification.typical import Typical
from specdec_core.decoding.verify import match_greedy
from specdec_core.errors import ConfigError, MeasurementError


class BatchVerifier:
    """Decides what every request of a batch commits.

    Args:
        sampling: How the target's logits become tokens, and the rule.
        with_margins: Whether verdicts must tell by how much tokens won; plain greedy decoding
            tells it by its rankings instead.

    Raises:
        ConfigError: if margins are wanted of a rule that has none.
    """

    def __init__(self, sampling: Sampling, *, with_margins: bool = False) -> None:
        if with_margins and not sampling.is_coupled:
            raise ConfigError(
                f"verification={sampling.verification} does not choose by the largest score and "
                "has no gaps to record: use 'match'"
            )
        self.is_plain = sampling.is_greedy and not sampling.has_penalties
        self._sampling = sampling
        self.has_margins = with_margins
        self._drawn_rule, self._chosen_rule = _make_rules(sampling, with_margins)

    def first_tokens(self, states: Sequence[SequenceState], logits: torch.Tensor) -> list[Verdict]:
        """Return the verdicts on nothing after the prompts: only bonus tokens.

        Args:
            states: The requests.
            logits: [B, V] after every prompt.
        """
        nothing = [Proposal.nothing(state.tokens[-1]) for state in states]
        return self.verify(states, nothing, logits[:, None])

    def verify(
        self,
        states: Sequence[SequenceState],
        proposals: Sequence[Proposal],
        logits: torch.Tensor,
        best: Sequence[int] | None = None,
    ) -> list[Verdict]:
        """Return what each request commits.

        Args:
            states: The requests, their tokens still without this step's.
            proposals: One per request.
            logits: [B, N, V] after every node of the forward trees, candidates first.
            best: [B * N] most likely ids, where they are known already.

        Raises:
            ConfigError: if margins are wanted and drafts were drawn.
            MeasurementError: if a root's logits are not numbers.
        """
        if logits[:, 0, 0].isnan().any():  # what poisons a hidden state poisons every logit
            raise MeasurementError(
                "the target's logits are not numbers: its weights are damaged, or it overflows "
                "without the parts that are skipped; skip others, or use a wider type"
            )
        if self.is_plain:
            if best is None:
                best = first_argmax(logits).flatten().tolist()
            width = logits.shape[1]
            choices = (best[row : row + width] for row in range(0, len(best), width))
            pairs = zip(proposals, choices, strict=True)
            return [Verdict(*match_greedy(one.candidates, own)) for one, own in pairs]
        return [self._verify_one(*each) for each in zip(states, proposals, logits, strict=True)]

    def _verify_one(
        self, state: SequenceState, proposal: Proposal, logits: torch.Tensor
    ) -> Verdict:
        tree = proposal.candidates
        rows = TreeRows(logits, tree, state.tokens, state.num_prompt, self._sampling)
        rule = self._drawn_rule if proposal.sampled else self._chosen_rule
        verdict = rule.verify(proposal, rows, state.noise)
        if self.has_margins and not verdict.margins:
            raise ConfigError(
                "gaps were to be recorded, but the drafter drew its candidates and "
                "verification=auto tests them by rejection: use verification=match"
            )
        return verdict


def _make_rules(
    sampling: Sampling, with_margins: bool
) -> tuple[VerificationRule, VerificationRule]:
    """Return the rules for drawn and for chosen candidates; greedily all rules are the same."""
    match = Match(with_margins=with_margins)
    if sampling.is_greedy:
        return match, match
    if sampling.verification == "auto":
        return Rejection(), match
    rules: dict[str, VerificationRule] = {
        "match": match,
        "residual": Residual(),
        "rejection": Rejection(),
        "typical": Typical(sampling.epsilon, sampling.delta),
    }
    rule = rules[sampling.verification]
    return rule, rule

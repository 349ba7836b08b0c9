"""Back-off tree: the likeliest paths of a back-off model learned while decoding."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from specdec_core.config.retrieval import BackoffTree
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.retrieval.backoff import Chances, Evidence, FollowerTable
from specdec_core.tree.token_tree import TokenTree


@register(BackoffTree)
class BackoffTreeDrafter:
    """Drafts the paths that a back-off model thinks likeliest.

    Candidates after a context are what followed its longest suffix in prompt and output, then what
    followed shorter ones, then the ids the target ranked best when it last saw the last token.
    Each carries its evidence, the tokens that agree (0 for a ranking) and the rank. How often such
    evidence was right is counted on every committed token, whether it was drafted or not; the
    product along a path is its chance, and the tree takes the likeliest nodes, beyond the free
    ones only while they are likely enough to pay. A long repetition thus becomes a chain and an
    open question a bush, without a switch between two drafters.

    Source: ours. It joins the matches of prompt lookup with the successor rows of Token Recycling
    under the selection by path probability that dynamic draft trees (EAGLE-2, section 4) use.
    """

    def __init__(self, config: BackoffTree, context: DrafterContext) -> None:  # noqa: ARG002
        self.needs = self.needs_for(config)
        self._num_free, self._min_chance = config.num_free, config.min_chance
        self._is_kept_between_requests = config.state_scope == "run"
        self._table = FollowerTable(config.max_ngram, config.max_followers)
        self._rankings: dict[int, Sequence[int]] = {}
        self._chances = Chances()

    @staticmethod
    def needs_for(config: BackoffTree) -> DrafterNeeds:
        """Ask for the rankings after committed tokens."""
        return DrafterNeeds(max_nodes=config.num_nodes, rows="path", top_k=config.top_k)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:  # noqa: ARG002 - not random
        """Begin a request with the n-grams of its prompt.

        Rankings and chances of earlier requests are kept if the state scope is the run.
        """
        self._table.clear()
        if not self._is_kept_between_requests:
            self._rankings.clear()
            self._chances.clear()
        for token in prompt:
            self._table.append(token)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the likeliest nodes, best first: a parent is always likelier than its child."""
        tokens, parents, depths = [sequence[-1]], [-1], [0]
        contexts = [self._table.tail]
        # Entries hold the negated chance, and their number for the order among equals.
        heap: list[tuple[float, int, int, int]] = []
        num_seen = 0
        chance, node = 1.0, 0
        while len(tokens) <= min(budget.max_nodes, self.needs.max_nodes):
            if depths[node] < budget.max_depth:
                for token, evidence in self._candidates(contexts[node]):
                    num_seen += 1
                    path_chance = chance * self._chances.estimate(evidence)
                    heappush(heap, (-path_chance, num_seen, node, token))
            if not heap:
                break
            negated, _, parent, token = heappop(heap)
            chance, node = -negated, len(tokens)
            if node > self._num_free and chance < self._min_chance:
                break
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
            contexts.append(self._table.extend(contexts[parent], token))
        return Proposal(TokenTree(tuple(tokens), tuple(parents)))

    def observe(self, outcome: StepOutcome) -> None:
        """Count which evidence was right, then learn the followers and the rankings."""
        for token in outcome.committed:
            self._chances.record(self._candidates(self._table.tail), token)
            self._table.append(token)
        self._rankings.update(zip(outcome.row_tokens, outcome.top_k, strict=True))

    def _candidates(self, context: tuple[int, ...]) -> list[tuple[int, Evidence]]:
        """Return distinct tokens that may follow, each with its strongest evidence."""
        found: dict[int, Evidence] = {}
        for token, evidence in self._table.search(context):
            found.setdefault(token, evidence)
        for rank, token in enumerate(self._rankings.get(context[-1], ())):
            found.setdefault(token, (0, rank))
        return list(found.items())

"""Drafters that draw, the exact law of short outputs, and outputs counted by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch

from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DraftBudget, Drafter, DrafterNeeds, Proposal, generate
from specdec_core.decoding.drafter import StepOutcome
from specdec_core.decoding.proposal import SampledChildren
from specdec_core.decoding.sampling import draw_children, probabilities, process_logits
from specdec_core.randomness import Noise
from specdec_core.tree import TokenTree
from tests.doubles import LogitsAfter, ScriptedView

Law = dict[tuple[int, ...], float]


def prompts_of(seed: int, num: int, vocab_size: int) -> list[list[int]]:
    rng = np.random.default_rng([seed, num])
    return [rng.integers(0, vocab_size, 1 + 3 * index).tolist() for index in range(num)]


class DrawingDrafter:
    """Draws `widths[depth]` children below every node from a model of its own."""

    def __init__(
        self,
        logits_after: LogitsAfter,
        widths: Sequence[int],
        *,
        with_replacement: bool = False,
        sampling: Sampling | None = None,
        are_told: bool = True,
    ) -> None:
        self.needs = DrafterNeeds(max_nodes=40)
        self._logits_after = logits_after
        self._widths = widths
        self._with_replacement = with_replacement
        self._sampling = sampling or Sampling(temperature=1.0)
        self._are_told = are_told

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        self._noise = Noise(77, seed)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        tokens, parents, paths = [sequence[-1]], [-1], [list(sequence)]
        level, sampled = [0], {}
        for depth in range(min(budget.max_depth, len(self._widths))):
            below: list[int] = []
            for node in level:
                row = torch.tensor(self._logits_after(paths[node]), dtype=torch.float64)
                row = process_logits(row, self._sampling, paths[node], len(sequence))
                drawn = draw_children(
                    row,
                    self._widths[depth],
                    self._noise,
                    f"draft/{node}",
                    len(sequence),
                    with_replacement=self._with_replacement,
                )
                nodes = {token: len(tokens) + i for i, token in enumerate(dict.fromkeys(drawn))}
                for token in nodes:
                    tokens.append(token)
                    parents.append(node)
                    paths.append([*paths[node], token])
                order = tuple(nodes[token] for token in drawn)
                sampled[node] = SampledChildren(order, probabilities(row), self._with_replacement)
                below.extend(nodes.values())
            level = below
        tree = TokenTree(tuple(tokens), tuple(parents))
        return Proposal(tree, sampled=sampled if self._are_told else {})

    def observe(self, outcome: StepOutcome) -> None:
        pass


def exact_law(view: ScriptedView, prompt: Sequence[int], sampling: Sampling, num: int) -> Law:
    """Return the probability of every output of `num` tokens."""
    law: Law = {(): 1.0}
    for _ in range(num):
        longer: Law = {}
        for output, chance in law.items():
            tokens = [*prompt, *output]
            row = torch.tensor(view.logits_after(tokens), dtype=torch.float64)
            row = probabilities(process_logits(row, sampling, tokens, len(prompt)))
            for token, own in enumerate(row.tolist()):
                longer[(*output, token)] = chance * own
        law = longer
    return law


def marginal(law: Law, places: slice) -> Law:
    """Return the law of the output tokens at `places`."""
    found: Law = {}
    for output, chance in law.items():
        found[output[places]] = found.get(output[places], 0.0) + chance
    return found


def draw_outputs(
    view: ScriptedView,
    prompt: Sequence[int],
    make: Callable[[], Drafter],
    sampling: Sampling,
    *,
    num_tokens: int,
    num_draws: int,
    batch_size: int = 500,
) -> list[tuple[int, ...]]:
    """Return sampled outputs of one prompt, each with a seed of its own."""
    outputs: list[tuple[int, ...]] = []
    while len(outputs) < num_draws:
        size = min(batch_size, num_draws - len(outputs))
        results = generate(
            view,
            [prompt] * size,
            [make() for _ in range(size)],
            max_new_tokens=num_tokens,
            eos_ids=(),
            sampling=sampling,
            seeds=range(len(outputs), len(outputs) + size),
        )
        outputs.extend(result.token_ids for result in results)
    return outputs


def counts_of(outputs: Sequence[tuple[int, ...]], places: slice) -> Counter[tuple[int, ...]]:
    """Return how often each run of tokens stands at `places`."""
    return Counter(output[places] for output in outputs)

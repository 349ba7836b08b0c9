"""From logits to the distribution that is sampled, the same for plain and speculative decoding.

Order: repetition penalty, presence penalty, temperature, top-k, top-p, min-p. Each step sees what
the one before left, and top-p counts the mass of what top-k kept. Rows stay logits, with minus
infinity where a token is excluded; their softmax is the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from specdec_core.config.sampling import Sampling
from specdec_core.decoding.ranking import largest
from specdec_core.randomness import Noise

_MINUS_INFINITY = -math.inf
# First guess of how many tokens hold the mass of top-p; grows until they do.
_NUCLEUS = 64


def process_logits(
    logits: torch.Tensor, sampling: Sampling, tokens: Sequence[int], num_prompt: int
) -> torch.Tensor:
    """Return one row's processed logits, [V], float64 for float64 logits, else float32.

    Args:
        logits: [V], any floating dtype; not changed.
        sampling: What is done to them; at temperature 0 penalties alone.
        tokens: Everything in front of the token the row predicts: prompt, output and the tokens
            of the tree path.
        num_prompt: How many of `tokens` are the prompt.
    """
    row = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.has_penalties:
        row = _penalise(row, sampling, tokens, num_prompt)
    if sampling.is_greedy:
        return row
    row = row / sampling.temperature
    if 0 < sampling.top_k < row.shape[-1]:
        row = _keep_largest(row, sampling.top_k)
    if sampling.top_p < 1.0:
        row = _keep_mass(row, sampling.top_p)
    if sampling.min_p > 0.0:
        row = row.masked_fill(row < row.max() + math.log(sampling.min_p), _MINUS_INFINITY)
    return row


def probabilities(processed: torch.Tensor) -> torch.Tensor:
    """Return the distribution of a processed row, [V], float64."""
    return torch.softmax(processed.double(), -1)


def fit_vocabulary(logits: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Return rows cut or filled up to another vocabulary size; missing ids are excluded.

    For drafters whose vocabulary is padded otherwise than the target's, before `process_logits`.

    Args:
        logits: [..., V'].
        vocab_size: The target's V.
    """
    missing = vocab_size - logits.shape[-1]
    return torch.nn.functional.pad(logits, (0, missing), value=_MINUS_INFINITY)


def draw_token(processed: torch.Tensor, noise: Noise, purpose: str, position: int) -> int:
    """Return a token drawn from a processed row: the largest sum of logit and Gumbel noise.

    Rows that are nearly equal draw the same token from the same noise nearly always.

    Args:
        processed: [V], minus infinity where excluded.
        noise: The request's random numbers.
        purpose: What is drawn.
        position: Place of the drawn token in the sequence.
    """
    ids, scores = perturb(processed, noise, purpose, position)
    return int(ids[scores.argmax()])


def draw_children(
    processed: torch.Tensor,
    num: int,
    noise: Noise,
    purpose: str,
    position: int,
    *,
    with_replacement: bool = False,
) -> list[int]:
    """Return up to `num` tokens in the order drawn, for a node's sampled children.

    Without replacement the largest sums of logit and Gumbel noise in falling order are draws one
    after the other, each from what the earlier ones left; no more than the row has tokens.

    Args:
        processed: [V], minus infinity where excluded.
        num: Draws, at least 1.
        noise: The request's random numbers.
        purpose: Names the node among all that are drawn for at this position.
        position: Place in the sequence that identifies the step, such as its root's.
        with_replacement: Whether tokens may be drawn again.

    Source: Vieira 2014, Gumbel-max trick and weighted reservoir sampling.
    """
    if with_replacement:
        return [draw_token(processed, noise, f"{purpose}/{i}", position) for i in range(num)]
    ids, scores = perturb(processed, noise, purpose, position)
    order = scores.topk(min(num, len(ids))).indices
    drawn: list[int] = ids[order].tolist()
    return drawn


def perturb(
    processed: torch.Tensor, noise: Noise, purpose: str, position: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids that are not excluded, [n], and their logits plus Gumbel noise, [n]."""
    ids = torch.isfinite(processed).nonzero()[:, 0]
    return ids, noise.gumbel(purpose, position, ids).add_(processed[ids])


def _penalise(
    row: torch.Tensor, sampling: Sampling, tokens: Sequence[int], num_prompt: int
) -> torch.Tensor:
    """Weaken what was said; a row may be shared, so it is copied.

    Source: CTRL (Keskar et al. 2019, section 4.1) for the repetition penalty, in its later form
    that multiplies negative logits.
    """
    row = row.clone()
    if sampling.repetition_penalty != 1.0:
        ids = torch.tensor(sorted(set(tokens)), device=row.device)
        said = row[ids]
        factor = sampling.repetition_penalty
        row[ids] = torch.where(said > 0, said / factor, said * factor)
    written = sorted(set(tokens[num_prompt:]))
    if sampling.presence_penalty != 0.0 and written:
        row[torch.tensor(written, device=row.device)] -= sampling.presence_penalty
    return row


def _keep_largest(row: torch.Tensor, num: int) -> torch.Tensor:
    """Exclude all but the `num` largest values, of equal ones the lowest ids."""
    values, _ = largest(row[None], num)
    return _keep_from(row, values[0, -1], num)


def _keep_mass(row: torch.Tensor, mass: float) -> torch.Tensor:
    """Exclude all but the smallest number of largest values whose softmax sums to `mass`."""
    total = torch.logsumexp(row, -1)
    num = min(_NUCLEUS, row.shape[-1])
    while True:
        values = largest(row[None], num)[0][0]
        reached = torch.exp(values.double() - total).cumsum(0)
        if float(reached[-1]) >= mass or num == row.shape[-1]:
            break
        num = min(8 * num, row.shape[-1])
    kept = min(int((reached < mass).sum()) + 1, num)
    return _keep_from(row, values[kept - 1], kept)


def _keep_from(row: torch.Tensor, edge: torch.Tensor, num: int) -> torch.Tensor:
    """Exclude what is below `edge`, the value of rank `num`, and the equals that are too many."""
    kept = row > edge
    equal = (row == edge).nonzero()[:, 0]
    kept[equal[: num - int(kept.sum())]] = True
    return row.masked_fill(~kept, _MINUS_INFINITY)

"""What the frozen target answers, in batches, and what it makes of whole sequences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.sampling import Sampling
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.decoding.sequence import Generation
from specdec_core.decoding.timing import synchronizer
from specdec_core.evaluation import StopStrings
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.view import TargetView
from specdec_core.randomness import derive_seed
from specdec_core.training.masks import Question
from specdec_core.training.spans import Span

# Rows of the head at once: their logits are the largest thing of a teacher-forced pass.
_HEAD_ROWS = 256
# Cache rows of a batch, all sequences together: they bound its memory where prompts are long.
_CACHE_ROWS = 32_768


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """How questions are answered.

    Attributes:
        max_new_tokens: Longest answer, tokens.
        temperature: 0 takes the likeliest token.
        seed: Of the run; with a question's name it makes the question's own seed.
        batch_size: Most questions answered together; the answers do not depend on it.
        should_stop: Asked before every step.
    """

    max_new_tokens: int
    temperature: float
    seed: int
    batch_size: int
    should_stop: Callable[[], bool] | None = None


def answer(
    view: TargetView, questions: Sequence[tuple[str, Question]], rules: AnswerRules
) -> list[Generation]:
    """Return the target's answers, in the order of the (name, question) pairs.

    Questions of like lengths are answered together, those with one beginning share it, and
    answers that are done leave the batch.

    Raises:
        SearchCancelledError: once `should_stop` is true.
    """
    answers: dict[int, Generation] = {}
    for indices in _batches([question for _, question in questions], rules):
        generations = _answer_batch(view, [questions[i] for i in indices], rules)
        answers.update(zip(indices, generations, strict=True))
    return [answers[index] for index in range(len(questions))]


def _batches(questions: Sequence[Question], rules: AnswerRules) -> list[list[int]]:
    """Return indices of questions to answer together: of one kind, longest first."""
    groups: dict[tuple[tuple[str, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    for index, question in enumerate(questions):
        groups[question.template.stop_strings, question.prefix_ids].append(index)
    batches: list[list[int]] = []
    for group in groups.values():
        room = 0
        for index in sorted(group, key=lambda i: (-len(questions[i].token_ids), i)):
            if room == 0:
                batches.append([])
                # Its first question is its longest.
                rows = len(questions[index].token_ids) + rules.max_new_tokens
                room = max(1, min(rules.batch_size, _CACHE_ROWS // rows))
            batches[-1].append(index)
            room -= 1
    return batches


def _answer_batch(
    view: TargetView, questions: Sequence[tuple[str, Question]], rules: AnswerRules
) -> list[Generation]:
    target, first = view.target, questions[0][1]
    sampling = Sampling(temperature=rules.temperature, seed=rules.seed)
    has_stops = bool(first.template.stop_strings)
    context = DrafterContext()
    return generate(
        view,
        [question.token_ids for _, question in questions],
        [make_drafter(NoDrafter(), context) for _ in questions],
        max_new_tokens=rules.max_new_tokens,
        eos_ids=target.eos_ids,
        stop_check=StopStrings(target.tokenizer, first.template) if has_stops else None,
        prefix=view.build_prefix(first.prefix_ids) if first.prefix_ids else None,
        synchronize=synchronizer(target.device),
        should_stop=rules.should_stop,
        sampling=sampling,
        seeds=[derive_seed(rules.seed, name) for name, _ in questions],
    )


@dataclass(frozen=True, slots=True)
class Forced:
    """A whole sequence through the target.

    Attributes:
        states: ``[N, 1 + T, h]``: the head's input after each token, and the taps.
        num_mismatched: Response tokens that are not ranked best before them.
        top_ids: ``[R, k]`` int32: ids ranked best before each of the R response tokens; None for
            k = 0.
        top_logits: ``[R, k]`` float32: their logits.
    """

    states: Tensor
    num_mismatched: int
    top_ids: NDArray[np.int32] | None
    top_logits: NDArray[np.float32] | None


@torch.inference_mode()
def force(
    view: TargetView,
    token_ids: Sequence[int],
    spans: Sequence[Span],
    *,
    taps: Sequence[int] = (),
    top_k: int = 0,
) -> Forced:
    """Run one sequence, teacher-forced, and compare its responses with what is ranked best.

    Args:
        view: The target.
        token_ids: Of the sequence.
        spans: Of its responses; none begins at 0.
        taps: Further hidden states, numbered as `specdec_core.models.taps`.
        top_k: Ids kept per response token.
    """
    cache = view.new_cache(1, len(token_ids))
    _, (states,) = view.prefill_tapped([token_ids], cache, (HEAD_INPUT, *taps))
    rows = [at - 1 for start, stop in spans for at in range(start, stop)]
    expected = torch.tensor([token_ids[row + 1] for row in rows], device=states.device)
    num_mismatched = 0
    ids, logits = [], []
    for at in range(0, len(rows), _HEAD_ROWS):
        part = slice(at, at + _HEAD_ROWS)
        scores = view.target.head(states[rows[part], 0])
        num_mismatched += int((scores.argmax(-1) != expected[part]).sum())
        if top_k:
            best = scores.float().topk(top_k, dim=-1)
            ids.append(best.indices.to(torch.int32).cpu().numpy())
            logits.append(best.values.cpu().numpy())
    return Forced(
        states,
        num_mismatched,
        np.concatenate(ids) if ids else None,
        np.concatenate(logits) if logits else None,
    )

"""Answers of the frozen target for draft training: in batches against one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.common import Timed, ratio, write
from specdec_core.config.draft_data import DataConfig
from specdec_core.config.settings import Settings
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.view import TargetView
from specdec_core.training.manifest import SHARD_PROMPTS
from specdec_core.training.masks import Question, ask
from specdec_core.training.prompts import draw_prompts
from specdec_core.training.responses import AnswerRules, answer, force
from tasks.runtime import resolve_device

_MODEL = "pypi:smollm2-135m"
_ROUNDS = 3
_ALONE = 6
"""Prompts of a round that are also answered one by one: enough for its rate, and in time."""
_CONFIG = DataConfig()


def run() -> None:
    """Measure response tokens per second at the default batch size and at batch 1, in turns.

    Every round has prompts of its own from the whole training pool: as many as a shard, and of
    these an even sample for batch 1. Prompts are read, too: seconds hold prefill and decoding.
    """
    settings = Settings()
    torch.set_num_threads(settings.threads)
    model = resolve_model(_MODEL, settings.cache_dir, print)
    target = load_target(model, dtype="bfloat16", device=resolve_device("auto"))
    drawn = draw_prompts(
        (),
        (_ROUNDS + 1) * SHARD_PROMPTS,
        max_turns=1,
        seed=7,
        data_dir=settings.data,
        why_not=lambda prompt: None if len(prompt.messages[0].content) < 4000 else "too long",
    )
    pairs = [(p.id, ask(target.tokenizer, target.kind, p)) for p in drawn.prompts]
    view = target.view()
    rounds = [pairs[at : at + SHARD_PROMPTS] for at in range(0, len(pairs), SHARD_PROMPTS)]
    _time(view, rounds.pop()[:4], 4)  # warm-up
    write("data_generation", _figures(view, rounds), "auto")


def _figures(view: TargetView, rounds: Sequence[Sequence[tuple[str, Question]]]) -> dict[str, Any]:
    together: list[Timed] = []
    alone: list[Timed] = []
    num_equal = num_compared = 0
    answers: dict[int, dict[str, tuple[int, ...]]] = {}
    for number, pairs in enumerate(rounds):
        # By length, then every nth: as long as the whole round on average.
        ordered = sorted(pairs, key=lambda pair: len(pair[1].token_ids))
        sample = ordered[len(ordered) // (2 * _ALONE) :: len(ordered) // _ALONE][:_ALONE]
        ways = [(pairs, _CONFIG.batch_size, together), (sample, 1, alone)]
        for asked, batch_size, times in ways if number % 2 else ways[::-1]:
            timed, answers[batch_size] = _time(view, asked, batch_size)
            times.append(timed)
        for name, tokens in answers[1].items():
            num_equal += answers[_CONFIG.batch_size][name] == tokens
            num_compared += 1
    forced_s = _time_forced(view, rounds[-1], answers[_CONFIG.batch_size])
    last = together[-1]
    return {
        "model": _MODEL,
        "batch_size": _CONFIG.batch_size,
        "max_new_tokens": _CONFIG.max_new_tokens,
        "num_prompts": sum(map(len, rounds)),
        "num_prompts_alone": num_compared,
        "num_equal_answers": num_equal,
        "mean_prompt_tokens": sum(len(q.token_ids) for pairs in rounds for _, q in pairs)
        / sum(map(len, rounds)),
        "response_tokens_per_s": ratio(together, alone),
        "last_round_with_states_tokens_per_s": last.tokens / (last.seconds + forced_s),
        "last_round_states_s": forced_s,
        "rounds": [asdict(timed) for timed in together],
        "rounds_alone": [asdict(timed) for timed in alone],
    }


def _time(
    view: TargetView, pairs: Sequence[tuple[str, Question]], batch_size: int
) -> tuple[Timed, dict[str, tuple[int, ...]]]:
    rules = AnswerRules(_CONFIG.max_new_tokens, 0.0, 0, batch_size)
    started = time.perf_counter()
    generations = answer(view, pairs, rules)
    seconds = time.perf_counter() - started
    answers = {
        name: generation.token_ids for (name, _), generation in zip(pairs, generations, strict=True)
    }
    return Timed(sum(map(len, answers.values())), seconds), answers


def _time_forced(
    view: TargetView,
    pairs: Sequence[tuple[str, Question]],
    answers: dict[str, tuple[int, ...]],
) -> float:
    """Return the seconds of the teacher-forced passes, which any way of answering needs."""
    started = time.perf_counter()
    for name, question in pairs:
        ids = question.token_ids + answers[name]
        force(view, ids, [(len(question.token_ids), len(ids))])
    return time.perf_counter() - started

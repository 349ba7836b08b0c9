"""Language-modelling loss of a (sparse) target on a suite's items: forwards only, no decoding."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.data.records import Suite, SuiteItem
from specdec_core.data.templates import Template, get_template, render_prompts
from specdec_core.errors import MeasurementError, SearchCancelledError
from specdec_core.evaluation import check_request, view_of
from specdec_core.models.prefix import PrefixCache
from specdec_core.models.prompt_states import PromptStates
from specdec_core.models.target import Target
from specdec_core.models.view import TargetView
from specdec_core.profiling.hardware import describe_hardware, peak_memory_bytes
from specdec_core.records import (
    EvaluationResult,
    PhaseSeconds,
    PromptWork,
    SampleResult,
    StepTrace,
)
from specdec_core.summary import summarize
from specdec_core.tree.token_tree import TokenTree

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Scored tokens per forward: bounds the logits kept at once.
_CHUNK = 64


def evaluate_loss(
    request: EvaluationRequest,
    target: Target,
    suite: Suite,
    should_stop: Callable[[], bool] = lambda: False,
    states: PromptStates | None = None,
) -> EvaluationResult:
    """Return the loss of each item's first reference behind its prompt, pooled over tokens.

    An item without a reference has the loss of its own prompt instead. Items are read one at a
    time, so that no result depends on what else is in a batch. Samples hold the scored tokens;
    their traces are empty, as nothing is decoded.

    Args:
        request: What to evaluate, in mode ``loss``.
        target: The loaded target the request names.
        suite: The suite the request names.
        should_stop: Asked before every item.
        states: As for `evaluate`.

    Raises:
        ConfigError: if target, suite or template are not what the request says.
        MeasurementError: if no item has a token to score.
        SearchCancelledError: if `should_stop` said so.

    Source: SLEB (its criterion); taking it from references of the selection items is ours.
    """
    started = time.perf_counter()
    template = get_template(request.domain, target.kind)
    check_request(request, target, suite, template)
    items = suite.select(request.item_ids)
    rendered = render_prompts(items, template, target.tokenizer)
    if states is not None:
        states.begin()
    view = view_of(request, target, states)
    prefix = view.build_prefix(rendered.prefix_ids) if rendered.prefix_ids else None
    samples, nats = [], []
    for item, prompt in zip(items, rendered.ids, strict=True):
        if should_stop():
            raise SearchCancelledError("the evaluation was stopped on request")
        context, scored = _parts(item, prompt, template, target.tokenizer, len(rendered.prefix_ids))
        nats += _token_losses(view, context, scored, prefix)
        samples.append(_sample(item, len(context), scored))
    if not nats:
        raise MeasurementError(
            "no item has a token whose loss could be taken: give references or longer prompts"
        )
    seconds = time.perf_counter() - started
    phases = PhaseSeconds(prefill=seconds)
    loss = math.fsum(nats) / len(nats)
    return EvaluationResult(
        key=request.key,
        summary=summarize(samples, phases).model_copy(update={"loss": loss}),
        samples=tuple(samples),
        phases=phases,
        wall_s=seconds,
        peak_memory_bytes=peak_memory_bytes(target.device),
        hardware=describe_hardware(target.device, has_own_kernels=target.engine is not None),
        prompt_work=states.work if states is not None else PromptWork(),
    )


def _parts(
    item: SuiteItem,
    prompt: tuple[int, ...],
    template: Template,
    tokenizer: PreTrainedTokenizerBase,
    num_shared: int,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens that are read and those that are scored behind them."""
    if not item.alternatives:
        return prompt[: num_shared + 1], prompt[num_shared + 1 :]
    text = item.alternatives[0]
    # Worked examples of a base template have a blank between question and answer.
    if template.kind == "base" and not template.item_format.endswith("}") and text[:1].strip():
        text = f" {text}"
    scored = tokenizer(text, add_special_tokens=False)["input_ids"]
    return prompt, tuple(int(token) for token in scored)


def _token_losses(
    view: TargetView, context: Sequence[int], scored: Sequence[int], prefix: PrefixCache | None
) -> list[float]:
    """Return nats of every scored token, each given all tokens before it."""
    if not scored:
        return []
    cache = view.new_cache(1, len(context) + len(scored))
    logits = view.prefill([context], cache, prefix)
    losses = _nats(logits, scored[:1])
    # The logits behind each token are those of the next one; the last token needs no forward.
    for start in range(0, len(scored) - 1, _CHUNK):
        part = scored[start : min(start + _CHUNK, len(scored) - 1)]
        found = view.forward([TokenTree.chain(part[0], part[1:])], cache)[0]
        losses += _nats(found, scored[start + 1 : start + 1 + len(part)])
        cache.commit([range(len(part))])
    return losses


def _nats(logits: torch.Tensor, tokens: Sequence[int]) -> list[float]:
    """Return negative log-likelihoods of `tokens` under rows of logits ``[N, V]``."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    wanted = torch.tensor(list(tokens), device=logits.device).unsqueeze(-1)
    chosen = logits[: len(tokens)].to(dtype).log_softmax(-1).gather(-1, wanted)
    return [-float(value) for value in chosen.squeeze(-1)]


def _sample(item: SuiteItem, prompt_tokens: int, scored: tuple[int, ...]) -> SampleResult:
    text = item.alternatives[0] if item.alternatives else item.prompt
    return SampleResult(
        item_id=item.id,
        prompt_tokens=prompt_tokens,
        token_ids=scored,
        text=text,
        answer=text,
        useful_tokens=len(scored),
        finish_reason="length",
        trace=StepTrace(),
    )

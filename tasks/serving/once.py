"""One prompt answered in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specdec_core.config.sampling import parse_sampling
from specdec_core.config.serving import GenerateConfig
from specdec_core.config.settings import Settings
from specdec_core.models.view import TargetView
from specdec_core.serving.controller import Lease
from specdec_core.serving.generator import TextAnswer, TextRequest
from tasks.runtime import LogLine
from tasks.serving.prompts import domain_ids, plain_ids
from tasks.serving.replies import report
from tasks.serving.setup import Serving, is_guessing, open_serving


def answer_once(
    config: GenerateConfig,
    prompt: str,
    settings: Settings,
    notify: LogLine,
    *,
    emit: Callable[[str], None],
    should_stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Return the answer to `prompt` with what was skipped, why, and how it went.

    Args:
        config: What to answer with.
        prompt: Text of the user.
        settings: Caches, device, threads, store.
        notify: Takes one line for the user.
        emit: Called with every piece of the text as it comes.
        should_stop: Asked before every step.

    Raises:
        ConfigError: if something cannot be used.
        SearchCancelledError: if `should_stop` said so.
    """
    sampling = parse_sampling(config.sampling)
    with open_serving(config, settings, notify, needs_router=is_guessing(config)) as serving:
        lease = serving.controller.lease(config.asked_domain, prompt)
        with lease:
            ids, stops = _read(serving, config, prompt, lease)
            request = TextRequest(
                ids,
                config.max_new_tokens,
                sampling.model_copy(update={"seed": 0}),
                sampling.seed,
                (*config.stop, *stops),
                skips_opening_space=bool(stops),
            )
            answer = serving.generator.answer(lease, request, emit, should_stop)
        return _document(serving, config, lease, answer)


def _read(
    serving: Serving, config: GenerateConfig, prompt: str, lease: Lease[TargetView]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if config.raw:
        return plain_ids(serving.target, prompt), ()
    return domain_ids(serving.target, prompt, lease.domain)


def _document(
    serving: Serving, config: GenerateConfig, lease: Lease[TargetView], answer: TextAnswer
) -> dict[str, Any]:
    return {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "num_prompt_tokens": answer.num_prompt_tokens,
        "num_tokens": len(answer.token_ids),
        "target": serving.info.reference,
        "dtype": serving.info.dtype,
        **report(lease, answer, config.drafter),
    }

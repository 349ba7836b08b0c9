"""One evaluation: decode a suite's items with a (sparse) target and a drafter, and score them."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.learned_drafters import LearnedOptions
from specdec_core.config.retrieval import Rest, SuffixAutomaton
from specdec_core.config.window_drafters import SelfDraft
from specdec_core.data.extraction import extract_answer, find_stop
from specdec_core.data.records import Suite, SuiteItem
from specdec_core.data.scoring import score
from specdec_core.data.templates import RenderedPrompts, Template, get_template, render_prompts
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import DRAFTERS, make_drafter
from specdec_core.decoding.replay import check_replayable, replay
from specdec_core.decoding.sequence import Generation
from specdec_core.decoding.timing import synchronizer
from specdec_core.drafts.checkpoint import LearnedDraft
from specdec_core.drafts.loading import DraftShelf
from specdec_core.drafts.manifest import read_draft_manifest
from specdec_core.errors import ConfigError
from specdec_core.models.prefix import PrefixCache
from specdec_core.models.prompt_states import PromptStates
from specdec_core.models.target import Target
from specdec_core.models.tokenizers import decode_text, token_ends
from specdec_core.models.view import TargetView
from specdec_core.profiling.hardware import describe_hardware, peak_memory_bytes
from specdec_core.profiling.memory import cache_bytes_per_token, weight_bytes
from specdec_core.randomness import derive_seed
from specdec_core.records import (
    EvaluationResult,
    PhaseSeconds,
    PromptWork,
    SampleResult,
    StepTrace,
)
from specdec_core.retrieval.datastore import read_manifest
from specdec_core.skip import SkipConfig
from specdec_core.summary import summarize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def evaluate(
    request: EvaluationRequest,
    target: Target,
    suite: Suite,
    should_stop: Callable[[], bool] | None = None,
    load_model: Callable[[str], Target] | None = None,
    states: PromptStates | None = None,
    *,
    load_draft: Callable[[str, bool], LearnedDraft] | None = None,
) -> EvaluationResult:
    """Decode and score the request's items, in the order of its ids.

    Args:
        request: What to evaluate.
        target: The loaded target the request names.
        suite: The suite the request names.
        should_stop: Asked before every step.
        load_model: Loads a draft model by its reference; None where no drafter needs one.
        states: What earlier evaluations of this target made of their prompts, to share; nothing
            in the result depends on it but seconds and `prompt_work`.
        load_draft: Loads a learned drafter, see `DrafterContext`; None keeps those of this
            evaluation alone.

    Raises:
        ConfigError: if target, suite, template or drafter are not what the request says.
        SearchCancelledError: if `should_stop` said so.
    """
    started = time.perf_counter()
    template = get_template(request.domain, target.kind)
    check_request(request, target, suite, template)
    items = suite.select(request.item_ids)
    rendered = render_prompts(items, template, target.tokenizer)
    if states is not None:
        states.begin()
    view = view_of(request, target, states)
    run = _Run(request, view, template, rendered, should_stop, load_model, load_draft)
    samples: list[SampleResult] = []
    phases = PhaseSeconds()
    for start in range(0, len(items), request.batch_size):
        part = slice(start, start + request.batch_size)
        generations, traces = run.decode(rendered.ids[part], items[part])
        phases += generations[0].phases
        for item, prompt, generation, trace in zip(
            items[part], rendered.ids[part], generations, traces, strict=True
        ):
            samples.append(run.sample(item, len(prompt), generation, trace))
    return EvaluationResult(
        key=request.key,
        summary=summarize(samples, phases).model_copy(update=_memory(request, target)),
        samples=tuple(samples),
        phases=phases,
        wall_s=time.perf_counter() - started,
        peak_memory_bytes=peak_memory_bytes(target.device),
        hardware=describe_hardware(target.device, has_own_kernels=target.engine is not None),
        prompt_work=states.work if states is not None else PromptWork(),
    )


def view_of(
    request: EvaluationRequest, target: Target, states: PromptStates | None = None
) -> TargetView:
    """Return the view of `target` that a request is about."""
    return target.view(SkipConfig.parse(request.skip), prefill=request.prefill, states=states)


class _Run:
    """What every batch of one evaluation shares."""

    def __init__(
        self,
        request: EvaluationRequest,
        view: TargetView,
        template: Template,
        rendered: RenderedPrompts,
        should_stop: Callable[[], bool] | None,
        load_model: Callable[[str], Target] | None,
        load_draft: Callable[[str, bool], LearnedDraft] | None,
    ) -> None:
        target = view.target
        self._request, self._target, self._template = request, target, template
        self._should_stop = should_stop
        self._view = view
        is_replay = request.mode == "replay"
        config = NoDrafter() if is_replay else request.drafter
        self._prefix: PrefixCache | None = None
        if rendered.prefix_ids:
            taps = DRAFTERS.needs(config).taps
            self._prefix = self._view.build_prefix(rendered.prefix_ids, taps)
        # One drafter per batch slot; what it remembers between requests is its own state scope.
        context = DrafterContext(
            target,
            target.eos_ids,
            load_model,
            request.sampling,
            self._view,
            load_draft or DraftShelf(target).load,
        )
        self._drafters = [make_drafter(config, context) for _ in rendered.ids[: request.batch_size]]
        self._replayed: Drafter | None = None
        if is_replay:
            self._replayed = make_drafter(request.drafter, context)
        has_stops = template.stop_strings and request.stop_policy == "stop_string"
        self._stop_check = StopStrings(target.tokenizer, template) if has_stops else None

    def decode(
        self, prompts: Sequence[tuple[int, ...]], items: Sequence[SuiteItem]
    ) -> tuple[list[Generation], list[StepTrace]]:
        """Return one batch's generations, and their traces under the request's drafter.

        A seed belongs to its item, whatever it is decoded together with.
        """
        replayed, sampling = self._replayed, self._request.sampling
        seeds = [derive_seed(sampling.seed, item.id) for item in items]
        generations = generate(
            self._view,
            prompts,
            self._drafters[: len(prompts)],
            max_new_tokens=self._request.max_new_tokens,
            eos_ids=self._target.eos_ids,
            stop_check=self._stop_check,
            prefix=self._prefix,
            synchronize=synchronizer(self._target.device),
            should_stop=self._should_stop,
            num_top_k=replayed.needs.top_k if replayed else 0,
            record_gaps=self._request.record_gaps,
            sampling=sampling,
            seeds=seeds,
        )
        if replayed is None:
            return generations, [generation.trace for generation in generations]
        return generations, [
            replay(
                replayed,
                prompt,
                generation.token_ids,
                generation.top_k,
                max_new_tokens=self._request.max_new_tokens,
                vocab_size=self._view.vocab_size,
                sampling=sampling,
                seed=seed,
            )
            for prompt, generation, seed in zip(prompts, generations, seeds, strict=True)
        ]

    def sample(
        self, item: SuiteItem, prompt_tokens: int, generation: Generation, trace: StepTrace
    ) -> SampleResult:
        """Return the scored sample of one generation."""
        tokenizer = self._target.tokenizer
        text = decode_text(tokenizer, generation.token_ids)
        extraction = extract_answer(text, self._template)
        is_alone = self._request.batch_size == 1 and self._request.mode == "decode"
        return SampleResult(
            item_id=item.id,
            prompt_tokens=prompt_tokens,
            token_ids=generation.token_ids,
            text=text,
            answer=extraction.answer,
            useful_tokens=_tokens_covering(tokenizer, generation.token_ids, extraction.end),
            finish_reason=generation.finish_reason,
            score=score(item.metric, extraction.answer, item),
            raw_score=score(item.metric, text, item),
            trace=trace,
            gaps=generation.gaps,
            seconds=generation.phases.decode if is_alone else None,
            step_seconds=tuple(round(s, 6) for s in generation.step_seconds) if is_alone else (),
            token_ends=token_ends(tokenizer, generation.token_ids, text) if is_alone else (),
        )


def _memory(request: EvaluationRequest, target: Target) -> dict[str, int]:
    """What the sparse target needs; a dense prefill needs all weights and a cache of all layers."""
    loaded = SkipConfig.parse("" if request.prefill == "dense" else request.skip)
    return {
        "weight_bytes": weight_bytes(target.arch, request.dtype, loaded),
        "cache_bytes_per_token": cache_bytes_per_token(target.arch, request.dtype, loaded),
    }


class StopStrings:
    """Stop check of the decode loop: ends an output with the token that completes a stop string."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: Template) -> None:
        self._tokenizer, self._template = tokenizer, template

    def __call__(self, output: Sequence[int]) -> int | None:
        """Return the length of the shortest beginning of `output` with a stop string, or None."""
        if not self._is_stopped(output):
            return None
        return bisect.bisect_left(
            range(len(output)), True, key=lambda size: self._is_stopped(output[:size])
        )

    def _is_stopped(self, output: Sequence[int]) -> bool:
        return find_stop(decode_text(self._tokenizer, output), self._template) is not None


def check_request(
    request: EvaluationRequest, target: Target, suite: Suite, template: Template
) -> None:
    """Check that what is loaded is what the request names, and its mode fits its drafter.

    Raises:
        ConfigError: if something differs.
    """
    given = {
        "target_identity": target.identity,
        "suite_hash": suite.content_hash,
        "template_hash": template.hash,
    }
    if (
        isinstance(request.drafter, Rest | SelfDraft | SuffixAutomaton)
        and request.drafter.datastore
    ):
        given["drafter_data"] = read_manifest(Path(request.drafter.datastore)).tokens_hash
    if isinstance(request.drafter, LearnedOptions):
        given["drafter_data"] = read_draft_manifest(Path(request.drafter.model)).identity
    for name, value in given.items():
        wanted = getattr(request, name)
        if wanted != value:
            raise ConfigError(
                f"request asks for {name} {wanted[:12]}.., but {value[:12]}.. is loaded: the "
                "files changed since the request was made; start the run again"
            )
    if request.mode == "replay":
        check_replayable(request.sampling)
    if request.mode == "replay" and not request.drafter.is_replayable:
        raise ConfigError(
            f"drafter {request.drafter.method!r} with these options cannot be replayed: use mode "
            "'decode', or an option such as update=path"
        )
    is_run_scoped = getattr(request.drafter, "state_scope", "prompt") == "run"
    if is_run_scoped and request.mode == "decode" and request.batch_size > 1:
        raise ConfigError(
            f"a drafter that remembers the whole run needs batch size 1, not {request.batch_size}: "
            "in a batch its memory would depend on the batch's composition"
        )


def _tokens_covering(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], end: int) -> int:
    """Return how many leading tokens decode to at least `end` characters."""
    return bisect.bisect_left(
        range(len(token_ids)), end, key=lambda size: len(decode_text(tokenizer, token_ids[:size]))
    )

"""One evaluation: decode a suite's items with a (sparse) target and a drafter, and score them."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_core.bench.metrics import count_acceptance
from specdec_core.config.drafters import NoDrafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.retrieval import Rest, SuffixAutomaton
from specdec_core.config.window_drafters import SelfDraft
from specdec_core.data.extraction import extract_answer, find_stop
from specdec_core.data.guards import guard_values
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
from specdec_core.errors import ConfigError
from specdec_core.models.prefix import PrefixCache
from specdec_core.models.target import Target
from specdec_core.models.tokenizers import decode_text
from specdec_core.models.view import TargetView
from specdec_core.profiling.hardware import describe_hardware, peak_memory_bytes
from specdec_core.randomness import derive_seed
from specdec_core.records import (
    EvaluationResult,
    EvaluationSummary,
    PhaseSeconds,
    SampleResult,
    StepTrace,
)
from specdec_core.retrieval.datastore import read_manifest
from specdec_core.skip import SkipConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def evaluate(
    request: EvaluationRequest,
    target: Target,
    suite: Suite,
    should_stop: Callable[[], bool] | None = None,
    load_model: Callable[[str], Target] | None = None,
) -> EvaluationResult:
    """Decode and score the request's items, in the order of its ids.

    Args:
        request: What to evaluate.
        target: The loaded target the request names.
        suite: The suite the request names.
        should_stop: Asked before every step.
        load_model: Loads a draft model by its reference; None where no drafter needs one.

    Raises:
        ConfigError: if target, suite, template or drafter are not what the request says.
        SearchCancelledError: if `should_stop` said so.
    """
    started = time.perf_counter()
    template = get_template(request.domain, target.kind)
    check_request(request, target, suite, template)
    items = suite.select(request.item_ids)
    rendered = render_prompts(items, template, target.tokenizer)
    run = _Run(request, target, template, rendered, should_stop, load_model)
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
        summary=summarize(samples, phases),
        samples=tuple(samples),
        phases=phases,
        wall_s=time.perf_counter() - started,
        peak_memory_bytes=peak_memory_bytes(target.device),
        hardware=describe_hardware(target.device, has_own_kernels=target.engine is not None),
    )


def summarize(samples: Sequence[SampleResult], phases: PhaseSeconds) -> EvaluationSummary:
    """Return the pooled figures of scored samples: sums first, then ratios."""
    counts = count_acceptance(sample.trace for sample in samples)
    guards = guard_values([s.token_ids for s in samples], [s.finish_reason for s in samples])
    scored = [s for s in samples if s.score is not None and s.raw_score is not None]
    num_tokens = sum(len(sample.token_ids) for sample in samples)
    after_first = num_tokens - len(samples)
    return EvaluationSummary(
        num_samples=len(samples),
        num_scored=len(scored),
        metric=_mean([s.score for s in scored if s.score is not None]),
        metric_raw=_mean([s.raw_score for s in scored if s.raw_score is not None]),
        num_steps=counts.num_steps,
        num_tokens=num_tokens,
        num_useful_tokens=sum(sample.useful_tokens for sample in samples),
        num_drafted=counts.num_drafted,
        num_accepted=counts.num_accepted,
        # Outputs of one token need no step at all: nothing was accepted, nothing was lost.
        acceptance_length=counts.acceptance_length if counts.num_steps else 1.0,
        hit_rate=counts.hit_rate if counts.num_steps else 0.0,
        mean_output_tokens=guards.mean_output_tokens,
        stop_rate=guards.stop_rate,
        distinct_2=guards.distinct_2,
        longest_repeat=guards.longest_repeat,
        prefill_s=phases.prefill,
        decode_s=phases.decode,
        tokens_per_s=after_first / phases.decode if after_first and phases.decode else 0.0,
    )


class _Run:
    """What every batch of one evaluation shares."""

    def __init__(
        self,
        request: EvaluationRequest,
        target: Target,
        template: Template,
        rendered: RenderedPrompts,
        should_stop: Callable[[], bool] | None,
        load_model: Callable[[str], Target] | None,
    ) -> None:
        self._request, self._target, self._template = request, target, template
        self._should_stop = should_stop
        self._view: TargetView = target.view(SkipConfig.parse(request.skip))
        is_replay = request.mode == "replay"
        config = NoDrafter() if is_replay else request.drafter
        self._prefix: PrefixCache | None = None
        if rendered.prefix_ids:
            taps = DRAFTERS.needs(config).taps
            self._prefix = self._view.build_prefix(rendered.prefix_ids, taps)
        # One drafter per batch slot; what it remembers between requests is its own state scope.
        context = DrafterContext(target, target.eos_ids, load_model, request.sampling, self._view)
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
        )


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


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

"""One request from its prompt to its text, on the view that its lease holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from specdec_core.bench.metrics import count_acceptance
from specdec_core.config.drafters import DrafterConfig
from specdec_core.config.sampling import Sampling
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.decoding.timing import synchronizer
from specdec_core.drafts.loading import DraftShelf
from specdec_core.models.target import Target
from specdec_core.models.tokenizers import decode_text
from specdec_core.models.view import TargetView
from specdec_core.records import FinishReason, PhaseSeconds
from specdec_core.serving.controller import Lease
from specdec_core.serving.text import OutputText

_MAX_DRAFTERS = 16  # per skip set and way of sampling, the least recently used goes


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What to decode.

    Attributes:
        prompt_ids: At least one token.
        max_new_tokens: Longest output, tokens.
        sampling: How tokens are chosen; its own seed stays 0.
        seed: Of this request.
        stop_strings: Texts that end the output and are not part of it.
        skips_opening_space: Whether stop strings in white space before the answer do not count.
    """

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    stop_strings: tuple[str, ...] = ()
    skips_opening_space: bool = False


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """What came out.

    Attributes:
        text: The output, cut at the stop string.
        token_ids: Its tokens, stop token or those of the stop string included.
        finish_reason: Why it ended.
        num_prompt_tokens: Length of the prompt.
        num_steps: Verify steps.
        acceptance_length: Committed tokens per verify step; None without a step.
        tokens_per_s: Tokens after the first per second of decoding; None where there are none.
        phases: Seconds by phase.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_steps: int
    acceptance_length: float | None
    tokens_per_s: float | None
    phases: PhaseSeconds


class TextGenerator:
    """Answers requests one at a time with one target and one drafter.

    Args:
        target: The loaded target, with its tokenizer.
        drafter: Options of the drafter.
        load_model: Loads a draft model by its reference; None where the drafter needs none.
    """

    def __init__(
        self,
        target: Target,
        drafter: DrafterConfig,
        load_model: Callable[[str], Target] | None = None,
    ) -> None:
        self._target, self._drafter, self._load_model = target, drafter, load_model
        self._load_draft = DraftShelf(target).load
        self._lock = threading.Lock()
        self._drafters: OrderedDict[tuple[str, Sampling], Drafter] = OrderedDict()

    def new_text(self, request: TextRequest) -> OutputText:
        """Return the empty text of an answer."""
        return OutputText(
            partial(decode_text, self._target.tokenizer),
            stop_strings=request.stop_strings,
            eos_ids=self._target.eos_ids,
            skips_opening_space=request.skips_opening_space,
        )

    def answer(
        self,
        lease: Lease[TargetView],
        request: TextRequest,
        emit: Callable[[str], None] = lambda _piece: None,
        should_stop: Callable[[], bool] | None = None,
    ) -> TextAnswer:
        """Decode a request and count it on its lease; requests of other threads wait.

        Args:
            lease: Holds the view for this request.
            request: What to decode.
            emit: Called with every piece of the text as soon as it is certain.
            should_stop: Asked before every step.

        Raises:
            ConfigError: if the request cannot work with this target.
            SearchCancelledError: if `should_stop` said so.
        """
        with lease, self._lock:
            text = self.new_text(request)

            def tell(_index: int, tokens: Sequence[int]) -> None:
                if piece := text.commit(tokens):
                    emit(piece)

            (generation,) = generate(
                lease.view,
                [request.prompt_ids],
                [self._drafter_for(lease, request.sampling)],
                max_new_tokens=request.max_new_tokens,
                eos_ids=self._target.eos_ids,
                stop_check=text.stop_check if request.stop_strings else None,
                synchronize=synchronizer(self._target.device),
                should_stop=should_stop,
                sampling=request.sampling,
                seeds=[request.seed],
                on_commit=tell,
            )
            if piece := text.finish():
                emit(piece)
            trace, phases, token_ids = generation.trace, generation.phases, generation.token_ids
            lease.finish(trace, len(token_ids))
        counts, num_later = count_acceptance([trace]), len(token_ids) - 1
        return TextAnswer(
            text=text.text,
            token_ids=token_ids,
            finish_reason=generation.finish_reason,
            num_prompt_tokens=len(request.prompt_ids),
            num_steps=counts.num_steps,
            acceptance_length=counts.acceptance_length if counts.num_steps else None,
            tokens_per_s=num_later / phases.decode if num_later and phases.decode else None,
            phases=phases,
        )

    def _drafter_for(self, lease: Lease[TargetView], sampling: Sampling) -> Drafter:
        """Return the drafter of this skip set; what it remembers is its own state scope."""
        key = (lease.group, sampling)
        if key not in self._drafters:
            target = self._target
            context = DrafterContext(
                target, target.eos_ids, self._load_model, sampling, lease.view, self._load_draft
            )
            self._drafters[key] = make_drafter(self._drafter, context)
        self._drafters.move_to_end(key)
        if len(self._drafters) > _MAX_DRAFTERS:
            self._drafters.popitem(last=False)
        return self._drafters[key]

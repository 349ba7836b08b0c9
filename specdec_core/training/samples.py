"""From prompts to samples: turns answered one after another, then run again as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec_core.config.draft_data import DataConfig
from specdec_core.decoding.sequence import Generation
from specdec_core.errors import SearchCancelledError
from specdec_core.models.target import Target
from specdec_core.models.tokenizers import decode_text
from specdec_core.training.manifest import DataCounts, sample_name
from specdec_core.training.masks import (
    Question,
    ask,
    ask_again,
    first_message,
    mask_conversation,
)
from specdec_core.training.prompts import Message, Prompt
from specdec_core.training.records import SampleEnd, StoredSample
from specdec_core.training.responses import AnswerRules, answer, force
from specdec_core.training.spans import Span, cut_spans


@dataclass(frozen=True, slots=True)
class SampleText:
    """One sequence before the target has seen it as a whole."""

    sample_id: str
    prompt: Prompt
    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    end: SampleEnd


class SampleMaker:
    """Makes the samples of some prompts.

    Args:
        prompts: What to answer; none twice.
        config: How, and what to keep of the target.
        target: Answers them.
        should_stop: Asked before every decoding step and every sample.

    Source: EAL (arXiv 2609.24150), data. What a server would see of earlier turns in later ones,
    and the comparison of stored tokens with the training forward, are ours.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        config: DataConfig,
        target: Target,
        should_stop: Callable[[], bool],
    ) -> None:
        self._prompts, self._config, self._target = prompts, config, target
        self._view, self._should_stop = target.view(), should_stop
        self._rules = AnswerRules(
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            seed=config.seed,
            batch_size=config.batch_size,
            should_stop=should_stop,
        )
        self._num_too_long = self._num_cut = 0

    @property
    def counts(self) -> DataCounts:
        """What was left out or cut."""
        return DataCounts(num_too_long=self._num_too_long, num_cut=self._num_cut)

    def texts(self) -> list[SampleText]:
        """Return every sequence of the shard, in the order of its prompts, turns in order."""
        texts: dict[str, list[SampleText]] = {prompt.id: [] for prompt in self._prompts}
        open_ones: list[tuple[Prompt, list[Message]]] = []
        for prompt in self._prompts:
            if prompt.is_finished:
                texts[prompt.id].append(self._given(prompt))
            else:
                open_ones.append((prompt, []))
        turn = 0
        while open_ones:
            open_ones = self._answer_turn(turn, open_ones, texts)
            turn += 1
        return [text for own in texts.values() for text in own]

    def sample(self, text: SampleText) -> StoredSample:
        """Return a sequence with what the target makes of it."""
        if self._should_stop():
            raise SearchCancelledError("the samples were asked to stop: they are made anew")
        config = self._config
        taps = config.taps if config.hidden == "taps" else ()
        forced = force(self._view, text.token_ids, text.spans, taps=taps, top_k=config.top_k)
        is_greedy = config.temperature == 0.0 and text.end != "given"
        return StoredSample(
            sample_id=text.sample_id,
            prompt_id=text.prompt.id,
            source=text.prompt.source,
            token_ids=text.token_ids,
            spans=text.spans,
            end=text.end,
            num_mismatched=forced.num_mismatched if is_greedy else None,
            states=forced.states if config.hidden != "none" else None,
            top_ids=forced.top_ids,
            top_logits=forced.top_logits,
        )

    def _answer_turn(
        self,
        turn: int,
        dialogues: Sequence[tuple[Prompt, list[Message]]],
        texts: dict[str, list[SampleText]],
    ) -> list[tuple[Prompt, list[Message]]]:
        """Answer one turn of every dialogue; return those that go on, with what was said."""
        asked = [(prompt, said, self._question(prompt, said)) for prompt, said in dialogues]
        fitting = [each for each in asked if self._fits(each[2])]
        self._num_too_long += len(asked) - len(fitting)
        names = [sample_name(prompt.id, turn) for prompt, _, _ in fitting]
        questions = [question for _, _, question in fitting]
        pairs = list(zip(names, questions, strict=True))
        generations = answer(self._view, pairs, self._rules) if pairs else []
        going_on = []
        for name, (prompt, said, question), generation in zip(
            names, fitting, generations, strict=True
        ):
            texts[prompt.id].append(_answered(name, prompt, question, generation))
            if turn < len(prompt.later_turns):
                going_on.append((prompt, self._continued(prompt, said, generation, turn)))
        return going_on

    def _question(self, prompt: Prompt, said: Sequence[Message]) -> Question:
        tokenizer, kind = self._target.tokenizer, self._target.kind
        if not said:
            return ask(tokenizer, kind, prompt)
        return ask_again(tokenizer, kind, prompt, said)

    def _fits(self, question: Question) -> bool:
        most = min(self._config.max_tokens, self._view.max_positions)
        return len(question.token_ids) + self._config.max_new_tokens <= most

    def _continued(
        self, prompt: Prompt, said: Sequence[Message], generation: Generation, turn: int
    ) -> list[Message]:
        """Return what was said so far and the user's next turn, as a server would see it."""
        text = decode_text(self._target.tokenizer, generation.token_ids)
        before = said or [first_message(self._target.kind, prompt)]
        return [
            *before,
            Message(role="assistant", content=text),
            Message(role="user", content=prompt.later_turns[turn]),
        ]

    def _given(self, prompt: Prompt) -> SampleText:
        """Return a finished conversation, its mask found in it."""
        target = self._target
        found = mask_conversation(target.tokenizer, prompt.messages, target.eos_ids, name=prompt.id)
        most = min(self._config.max_tokens, self._view.max_positions)
        self._num_cut += len(found.token_ids) > most
        spans = cut_spans(found.spans, most)
        return SampleText(prompt.id, prompt, found.token_ids[:most], spans, "given")


def _answered(name: str, prompt: Prompt, question: Question, generation: Generation) -> SampleText:
    start = len(question.token_ids)
    ids = question.token_ids + generation.token_ids
    return SampleText(name, prompt, ids, ((start, len(ids)),), generation.finish_reason)

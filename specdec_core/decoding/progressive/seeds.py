"""What a draft forest starts with: random prompt tokens, or what the prompt is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from specdec_core.decoding.drafting_window import PromptTokens

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedTokenizerBase

# Seeds, and tokens of a seed at most.
_RANDOM_SEEDS = 2
_SEED_TOKENS = 2
_DRAWS_PER_SEED = 16

_IDENTIFIER = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]{2,}")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])[0-9]+(?:[.,][0-9]+)*(?![A-Za-z0-9_])")
_QUOTATION = re.compile(r'"([^"\n]+)"|“([^”\n]+)”|`([^`\n]+)`|(?<!\w)\'([^\'\n]+)\'(?!\w)')
_LETTERS = re.compile(r"(?<!\w)[^\W\d_]{2,}(?!\w)")
_OPENING = " \t\"'“(["
_SENTENCE_END = ".!?:\n"


def random_seeds(
    prompt: Sequence[int], closed: Collection[int], generator: np.random.Generator
) -> list[list[int]]:
    """Return two chains of one or two random prompt tokens that begin differently.

    One chain where no second first token turns up.

    Args:
        prompt: The prompt.
        closed: Tokens that are no seeds, unless the prompt has no others.
        generator: Of the request.

    Source: Progressive Tree Drafting, random initialisation; sizes from its released code.
    """
    filler = PromptTokens(prompt, closed, generator)
    chains: dict[int, list[int]] = {}
    for _ in range(_RANDOM_SEEDS * _DRAWS_PER_SEED):
        chain = filler.pick(int(generator.integers(1, _SEED_TOKENS + 1)))
        chains.setdefault(chain[0], chain)
        if len(chains) == _RANDOM_SEEDS:
            break
    return list(chains.values())


def entity_seeds(
    prompt: Sequence[int], tokenizer: PreTrainedTokenizerBase, num: int
) -> list[list[int]]:
    """Return the first tokens of the `num` entities that the prompt mentions most.

    Args:
        prompt: The prompt.
        tokenizer: Reads it back; its special tokens are no text.
        num: Most seeds.

    Source: Progressive Tree Drafting initialises with named entities and does not say how they are
    found; `find_entities` is our rule.
    """
    text = tokenizer.decode(prompt, skip_special_tokens=True)
    tokens = (
        tokenizer.encode(f" {entity}", add_special_tokens=False)[:_SEED_TOKENS]
        for entity in find_entities(text)[:num]
    )
    return [seed for seed in tokens if seed]


def find_entities(text: str) -> list[str]:
    """Return what looks like an entity, the most frequent first, then by first appearance.

    Entities are identifiers of three characters or more with an underscore, a digit or a capital
    behind the first; numbers; quoted text; and runs of capitalised words that do not begin a
    sentence. The same text found in one place in two ways counts once.
    """
    found = {*_identifiers(text), *_numbers(text), *_quotations(text), *_names(text)}
    counts = Counter(entity for _, entity in found)
    first: dict[str, int] = {}
    for position, entity in sorted(found):
        first.setdefault(entity, position)
    return sorted(first, key=lambda entity: (-counts[entity], first[entity], entity))


def _identifiers(text: str) -> Iterator[tuple[int, str]]:
    for match in _IDENTIFIER.finditer(text):
        word = match.group()
        if any(c in "_0123456789" for c in word) or any(c.isupper() for c in word[1:]):
            yield match.start(), word


def _numbers(text: str) -> Iterator[tuple[int, str]]:
    return ((match.start(), match.group()) for match in _NUMBER.finditer(text))


def _quotations(text: str) -> Iterator[tuple[int, str]]:
    for match in _QUOTATION.finditer(text):
        yield match.start() + 1, match.group()[1:-1]


def _names(text: str) -> Iterator[tuple[int, str]]:
    spans: list[list[int]] = []
    for match in _LETTERS.finditer(text):
        if not match.group()[0].isupper() or _begins_sentence(text, match.start()):
            continue
        if spans and text[spans[-1][1] : match.start()] == " ":
            spans[-1][1] = match.end()
        else:
            spans.append([match.start(), match.end()])
    return ((start, text[start:end]) for start, end in spans)


def _begins_sentence(text: str, position: int) -> bool:
    before = text[:position].rstrip(_OPENING)
    return not before or before[-1] in _SENTENCE_END
